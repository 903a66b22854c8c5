//! pgbench, which ships with PostgreSQL: the same rows without anything around them.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use onejob::store::postgres;

use crate::postgres::{Cluster, Database};

/// What pgbench repeats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// One job in a transaction.
    Insert,
    /// One life in three transactions.
    Life,
    /// A hundred lives in two transactions.
    Batch,
}

impl Script {
    fn text(self) -> &'static str {
        match self {
            Script::Insert => include_str!("insert.sql"),
            Script::Life => include_str!("life.sql"),
            Script::Batch => include_str!("batch.sql"),
        }
    }

    fn jobs(self) -> f64 {
        match self {
            Script::Insert | Script::Life => 1.0,
            Script::Batch => 100.0,
        }
    }
}

/// Makes what the scripts need, and finished jobs.
pub(super) async fn prepare(database: &Database<'_>, finished: u64) {
    database.shell(include_str!("prepare.sql")).await;
    if finished > 0 {
        database.shell(&include_str!("fill.sql").replace("FINISHED", &finished.to_string())).await;
    }
}

/// Before a measurement: nothing to clean up. Finished jobs that were made once stay, and those of the
/// measurements before with them.
pub(super) async fn fresh(database: &Database<'_>, finished: u64) {
    if finished == 0 {
        database.shell("TRUNCATE onejob.jobs, onejob.attempts, onejob.queue, onejob.notices").await;
    }
    database.shell("VACUUM ANALYZE").await;
    database.shell("CHECKPOINT").await;
}

/// Jobs per second.
pub(super) fn rate(cluster: &Cluster, database: &Database<'_>, script: Script, clients: u32, seconds: u64) -> f64 {
    let program = cluster.programs().join("pgbench");
    assert!(program.is_file(), "pgbench is not installed here; Debian has it in the package postgresql-contrib");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script.text()).unwrap();
    // The plans that the store asks for.
    let settings: String = postgres::settings().map(|(name, value)| format!(" -c {name}={value}")).collect();
    let output = Command::new(program)
        .env("PGOPTIONS", settings)
        .args(["-n", "-M", "prepared", "-h", "127.0.0.1", "-U", "onejob", "-p", &cluster.port().to_string()])
        .args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string(), "-T", &seconds.to_string(), "-f"])
        .arg(file.path())
        .arg(&database.name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("tps = ")).unwrap_or_else(|| panic!("{output:?}"));
    line["tps = ".len()..].split(' ').next().unwrap().parse::<f64>().unwrap() * script.jobs()
}
