//! What is wrong, or soon will be, with what a node stands on: its store, the other nodes, its providers' hosts.
//! It only looks. Each finding says what to do about it.

mod database;
mod file;
mod jobs;
mod providers;
#[cfg(test)]
mod tests;

use crate::config::{Config, StoreLocation};
use crate::store::{PostgresOptions, postgres, sqlite};

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All is well.
    Good,
    /// Nothing to do; good to know.
    Note,
    /// It needs a hand.
    Finding,
    /// It could not be looked at, or need not be.
    Skipped,
}

impl State {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Good => "ok",
            State::Note => "note",
            State::Finding => "finding",
            State::Skipped => "skipped",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What; a name that programs may rely on, such as `database.clock`.
    pub name: &'static str,
    /// How it ended.
    pub state: State,
    /// What was seen.
    pub seen: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Check {
    fn good(name: &'static str, seen: impl Into<String>) -> Check {
        Check { name, state: State::Good, seen: seen.into(), advice: None }
    }

    fn note(name: &'static str, seen: impl Into<String>) -> Check {
        Check { name, state: State::Note, seen: seen.into(), advice: None }
    }

    fn skipped(name: &'static str, why: impl Into<String>) -> Check {
        Check { name, state: State::Skipped, seen: why.into(), advice: None }
    }

    fn finding(name: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, state: State::Finding, seen: seen.into(), advice: Some(advice.into()) }
    }
}

/// Looks at everything that a configuration names.
pub async fn examine(config: &Config) -> Vec<Check> {
    let mut checks = match &config.server.store {
        StoreLocation::Memory => vec![Check::note("store", "jobs are kept in memory: none survives the process")],
        StoreLocation::Sqlite(path) => {
            let looked = path.clone();
            match tokio::task::spawn_blocking(move || sqlite::examine(&looked)).await {
                Ok(seen) => file::judge(config, path, &seen),
                Err(error) => vec![Check::skipped("file", error.to_string())],
            }
        }
        StoreLocation::Postgres(url) => match PostgresOptions::parse(url.reveal()) {
            Ok(options) => match postgres::examine(&options).await {
                Ok(seen) => database::judge(config, &options, &seen),
                Err(error) => vec![database::unreachable(&options, &error)],
            },
            Err(why) => vec![Check::finding("database.connection", why, "correct server.store")],
        },
    };
    checks.extend(providers::judge(config).await);
    checks
}

/// A length of time, as people say it.
fn span(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        ..10 => format!("{:.1} s", ms.max(0) as f64 / 1000.0),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// An amount of bytes, as people say it.
fn size(bytes: i64) -> String {
    match bytes {
        ..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

/// A number with its word.
fn count(number: i64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
