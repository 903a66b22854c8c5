//! Looking at a database for `onejob doctor`: one connection that only reads, bounded in time, and nothing
//! of it in the way of those who work.

use std::time::Instant;

use onejob_core::Millis;
use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Client, Row};

use super::fault::sentence;
use super::options::PostgresOptions;
use super::schema::{Direct, OpenError, found_version, known_version};
use crate::store::examined::{
    Asked, ExaminedDatabase, ExaminedJobs, ExaminedNode, ExaminedQueue, ExaminedServer, ExaminedSlot, ExaminedStandby,
    ExaminedTable, ExaminedTransaction,
};
use crate::store::nodes::wall_clock;

const SERVER: &str = include_str!("examine/server.sql");
const UNKNOWN: &str = include_str!("examine/unknown.sql");
const QUEUE: &str = include_str!("examine/queue.sql");
const NODES: &str = include_str!("examine/nodes.sql");
const TABLES: &str = include_str!("examine/tables.sql");
const TRANSACTIONS: &str = include_str!("examine/transactions.sql");
const SLOTS: &str = include_str!("examine/slots.sql");
const STANDBYS: &str = include_str!("examine/standbys.sql");

/// Said first: it waits for nobody, writes nothing, and ends by itself.
const MANNERS: &str = "SET default_transaction_read_only = on; SET statement_timeout = '10s'; SET lock_timeout = '1s'";

/// Looks at a database.
///
/// # Errors
///
/// [`OpenError::Unreachable`]; what cannot be asked beyond that is said where its answer would stand.
pub async fn examine(options: &PostgresOptions) -> Result<ExaminedDatabase, OpenError> {
    let connection = Direct::open(options).await?;
    let client = &connection.client;
    let unreachable = |error| OpenError::Unreachable(sentence(&error));
    client.batch_execute(MANNERS).await.map_err(unreachable)?;
    let server = server(client, options).await.map_err(OpenError::Unreachable)?;
    let now = wall_clock() + server.clock_ahead_ms;
    Ok(ExaminedDatabase {
        server,
        schema_version: found_version(client).await.map_err(|error| error.to_string()),
        known_version: known_version(),
        jobs: jobs(client, now).await,
        nodes: all(client, NODES, node).await,
        tables: all(client, TABLES, table).await,
        transactions: all(client, TRANSACTIONS, transaction).await,
        slots: all(client, SLOTS, slot).await,
        standbys: all(client, STANDBYS, standby).await,
    })
}

async fn server(client: &Client, options: &PostgresOptions) -> Asked<ExaminedServer> {
    // Twice: the first one reads catalogs and takes its time.
    ask(client, SERVER).await?;
    let (asked, local) = (Instant::now(), wall_clock());
    let rows = ask(client, SERVER).await?;
    let round_trip_ms = Millis::try_from(asked.elapsed().as_millis()).unwrap_or(Millis::MAX);
    let row = rows.first().ok_or("the server said nothing")?;
    let said: Millis = get(row, 10)?;
    Ok(ExaminedServer {
        place: options.place(),
        version: get(row, 0)?,
        version_text: get(row, 1)?,
        user: get(row, 2)?,
        database: get(row, 3)?,
        is_standby: get(row, 4)?,
        fsync: get(row, 5)?,
        full_page_writes: get(row, 6)?,
        synchronous_commit: get(row, 7)?,
        connections_most: get(row, 8)?,
        connections_now: get(row, 9)?,
        clock_ahead_ms: said - local - round_trip_ms / 2,
        round_trip_ms,
    })
}

async fn jobs(client: &Client, now: Millis) -> Asked<ExaminedJobs> {
    let unknown = ask(client, UNKNOWN).await?;
    let row = unknown.first().ok_or("the server said nothing")?;
    let queues = all(client, QUEUE, |row| {
        Ok(ExaminedQueue {
            provider: get::<String>(row, 0)?.into(),
            queued: get(row, 1)?,
            due: get(row, 2)?,
            oldest_due: get(row, 3)?,
        })
    });
    Ok(ExaminedJobs { unknown: get(row, 0)?, unknown_since: get(row, 1)?, queues: queues.await?, now })
}

fn node(row: &Row) -> Asked<ExaminedNode> {
    let now: Millis = get(row, 4)?;
    let ended: Option<Millis> = get(row, 3)?;
    Ok(ExaminedNode {
        name: get(row, 0)?,
        age_ms: now - get::<Millis>(row, 1)?,
        lease_ms: get::<Millis>(row, 2)? - now,
        ended_ms: ended.map(|ended| now - ended),
        open_attempts: get(row, 5)?,
    })
}

fn table(row: &Row) -> Asked<ExaminedTable> {
    Ok(ExaminedTable {
        name: get(row, 0)?,
        live: get(row, 1)?,
        dead: get(row, 2)?,
        cleaned_ms: get(row, 3)?,
        bytes: get(row, 4)?,
    })
}

fn transaction(row: &Row) -> Asked<ExaminedTransaction> {
    Ok(ExaminedTransaction {
        name: get(row, 0)?,
        user: get(row, 1)?,
        application: get(row, 2)?,
        state: get(row, 3)?,
        age_ms: get(row, 4)?,
    })
}

fn slot(row: &Row) -> Asked<ExaminedSlot> {
    Ok(ExaminedSlot { name: get(row, 0)?, is_active: get(row, 1)?, keeps_rows: get(row, 2)?, kept_bytes: get(row, 3)? })
}

fn standby(row: &Row) -> Asked<ExaminedStandby> {
    Ok(ExaminedStandby { name: get(row, 0)?, state: get(row, 1)?, sync: get(row, 2)?, lag_ms: get(row, 3)? })
}

async fn all<T>(client: &Client, sql: &str, read: impl Fn(&Row) -> Asked<T>) -> Asked<Vec<T>> {
    ask(client, sql).await?.iter().map(read).collect()
}

async fn ask(client: &Client, sql: &str) -> Asked<Vec<Row>> {
    client.query_typed(sql, &[]).await.map_err(|error| sentence(&error))
}

fn get<T: FromSqlOwned>(row: &Row, place: usize) -> Asked<T> {
    row.try_get(place).map_err(|error| sentence(&error))
}
