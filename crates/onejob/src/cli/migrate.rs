//! `onejob migrate`: brings a PostgreSQL database to the schema that this build knows.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::exit::Exit;
use crate::config::{Config, StoreLocation};
use crate::store::PostgresOptions;
use crate::store::postgres::{Migration, OpenError, known_version, migrate, pending};

/// Bring the database to the schema that this build knows
///
/// For PostgreSQL; safe beside running nodes, and from several places at once. An embedded file is migrated by
/// `serve` itself.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  onejob migrate --dry-run\n  onejob migrate --config /etc/onejob.toml\n")]
pub(super) struct MigrateArgs {
    /// The configuration file; `server.store` says which database
    #[arg(long, default_value = "onejob.toml", value_name = "FILE")]
    config: PathBuf,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// Migrates, or says what is left to do.
pub(super) fn run(args: &MigrateArgs) -> ExitCode {
    let exit = match migrate_store(args) {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            Exit::Good
        }
        Err((exit, message)) => {
            eprintln!("error: {message}");
            exit
        }
    };
    ExitCode::from(exit.code())
}

fn migrate_store(args: &MigrateArgs) -> Result<Vec<String>, (Exit, String)> {
    let config = Config::load(&args.config).map_err(|errors| (Exit::JobNotDone, errors.to_string()))?;
    let url = match &config.server.store {
        StoreLocation::Postgres(url) => url,
        StoreLocation::Sqlite(_) | StoreLocation::Memory => {
            return Ok(vec![format!("{}: nothing to do, `serve` migrates it at its start", config.server.store)]);
        }
    };
    let options = PostgresOptions::parse(url.reveal()).map_err(|message| (Exit::JobNotDone, message))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (Exit::Unavailable, error.to_string()))?;
    let (done, verb) = if args.dry_run {
        (runtime.block_on(pending(&options)), "would apply")
    } else {
        (runtime.block_on(migrate(&options)), "applied")
    };
    let done = done.map_err(|error| (exit_of(&error), error.to_string()))?;
    let mut lines: Vec<String> = done.iter().map(|Migration { name, .. }| format!("{verb} {name}")).collect();
    if lines.is_empty() {
        lines.push(format!("nothing to do: the schema is at version {}", known_version()));
    }
    Ok(lines)
}

fn exit_of(error: &OpenError) -> Exit {
    match error {
        OpenError::Unreachable(_) => Exit::Unavailable,
        OpenError::Newer { .. } | OpenError::Older { .. } => Exit::JobNotDone,
    }
}
