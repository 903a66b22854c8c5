//! The schema's version: numbered migrations, each one transaction, run by `onejob migrate`. A node refuses
//! a schema that is older than it needs or newer than it knows.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use super::fault::sentence;
use super::options::PostgresOptions;
use super::{sql, tls};

/// A step from one version to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migration {
    /// The version that it leads to.
    pub version: i64,
    /// The name of its file.
    pub name: &'static str,
    /// What it does.
    pub sql: &'static str,
}

/// All of them, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_jobs.sql", sql: include_str!("migrations/0001_jobs.sql") },
    Migration { version: 2, name: "0002_certificates.sql", sql: include_str!("migrations/0002_certificates.sql") },
];

/// How a migration waits for others' locks on a live system: briefly and again, so that nobody queues
/// up behind it for long.
const LOCK_TIMEOUT_MS: u32 = 2_000;
const LOCK_TRIES: u32 = 30;
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// Why the database cannot be used; a sentence for people, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be reached, or what it says cannot be used.
    #[error("cannot use the PostgreSQL database: {0}")]
    Unreachable(String),
    /// It was migrated by a newer onejob.
    #[error("the database has schema version {found} and this onejob knows {known}: use the newer onejob")]
    Newer {
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// It was never migrated, or not far enough.
    #[error("the database has schema version {found} and this onejob needs {known}: run `onejob migrate`")]
    Older {
        /// Its version; 0 if it has none.
        found: i64,
        /// The version needed here.
        known: i64,
    },
}

/// The newest version known here.
pub fn known_version() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// What is still to be done to the database; nothing is written.
///
/// # Errors
///
/// [`OpenError::Unreachable`] and [`OpenError::Newer`].
pub async fn pending(options: &PostgresOptions) -> Result<Vec<Migration>, OpenError> {
    let connection = Direct::open(options).await?;
    let found = found_version(&connection.client).await?;
    left(found)
}

/// Brings the database to the version that this build knows, and says what was done. Safe to run from
/// several places at once, and beside running nodes.
///
/// # Errors
///
/// [`OpenError::Unreachable`] and [`OpenError::Newer`].
pub async fn migrate(options: &PostgresOptions) -> Result<Vec<Migration>, OpenError> {
    let connection = Direct::open(options).await?;
    let client = &connection.client;
    let mut done = Vec::new();
    // So that a database that has all of it needs no right to change anything.
    while let Some(next) = left(found_version(client).await?)?.first() {
        let mut tries = 0;
        loop {
            match step(client, next).await {
                Ok(true) => done.push(*next),
                // Another run was faster.
                Ok(false) => {}
                Err(error) if may_pass(&error) && tries < LOCK_TRIES => {
                    tries += 1;
                    let _ = client.batch_execute("ROLLBACK").await;
                    tokio::time::sleep(LOCK_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(OpenError::Unreachable(format!("{}: {}", next.name, sentence(&error)))),
            }
            break;
        }
    }
    Ok(done)
}

/// Whether this build can work on the database.
pub(super) async fn check(options: &PostgresOptions) -> Result<(), OpenError> {
    let connection = Direct::open(options).await?;
    let (found, known) = (found_version(&connection.client).await?, known_version());
    match left(found)?.is_empty() {
        true => Ok(()),
        false => Err(OpenError::Older { found, known }),
    }
}

fn left(found: i64) -> Result<Vec<Migration>, OpenError> {
    let known = known_version();
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    Ok(MIGRATIONS.iter().filter(|migration| migration.version > found).copied().collect())
}

/// A migration and its number are one commit.
async fn step(client: &Client, migration: &Migration) -> Result<bool, Error> {
    let begin = sql::SCHEMA_BEGIN;
    client.batch_execute(&format!("BEGIN; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; {begin}")).await?;
    let found = client.query_typed(sql::SCHEMA_VERSION.text, &[]).await?;
    let found: i64 = found.first().map_or(Ok(0), |row| row.try_get(0))?;
    if found >= migration.version {
        client.batch_execute("ROLLBACK").await?;
        return Ok(false);
    }
    client.batch_execute(migration.sql).await?;
    let done: [(&(dyn ToSql + Sync), Type); 2] = [(&migration.version, Type::INT8), (&migration.name, Type::TEXT)];
    client.query_typed(sql::SCHEMA_DONE.text, &done).await?;
    client.batch_execute("COMMIT").await?;
    Ok(true)
}

/// Locks that somebody holds, and two runs that begin at once.
fn may_pass(error: &Error) -> bool {
    [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_SCHEMA,
        SqlState::DUPLICATE_TABLE,
    ]
    .iter()
    .any(|passing| error.code() == Some(passing))
}

pub(super) async fn found_version(client: &Client) -> Result<i64, OpenError> {
    let unreachable = |error: Error| OpenError::Unreachable(sentence(&error));
    let there = client.query_typed(sql::SCHEMA_IS_THERE.text, &[]).await;
    if !there.map_err(unreachable)?.first().map_or(Ok(false), |row| row.try_get(0)).map_err(unreachable)? {
        return Ok(0);
    }
    let found = client.query_typed(sql::SCHEMA_VERSION.text, &[]).await;
    found.map_err(unreachable)?.first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreachable)
}

/// A connection outside of every pool.
pub(super) struct Direct {
    pub(super) client: Client,
    driven: tokio::task::JoinHandle<()>,
}

impl Direct {
    pub(super) async fn open(options: &PostgresOptions) -> Result<Direct, OpenError> {
        let connector = tls::connector(&options.tls).map_err(OpenError::Unreachable)?;
        let opened = options.config.connect(connector).await;
        let (client, connection) = opened.map_err(|error| OpenError::Unreachable(sentence(&error)))?;
        let driven = tokio::spawn(async move { drop(connection.await) });
        Ok(Direct { client, driven })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.driven.abort();
    }
}
