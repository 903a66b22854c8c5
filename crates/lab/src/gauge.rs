//! What a PostgreSQL server syncs and writes: counters that no noisy neighbour moves.
// A test that cannot read its gauge must fail.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio_postgres::Client;

/// What the server has done so far.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    /// How often it synced its log; PostgreSQL 13 does not say.
    pub syncs: Option<i64>,
    /// Bytes written to its log.
    pub log_bytes: i64,
    /// Whole pages among them; PostgreSQL 13 does not say.
    pub full_pages: Option<i64>,
}

/// Longer than a session takes to report what it did.
const REPORT: Duration = Duration::from_millis(1_500);

impl Gauge {
    /// Reads it, of the whole server, once every session has reported.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn read(client: &Client) -> Gauge {
        tokio::time::sleep(REPORT).await;
        let version = "SELECT current_setting('server_version_num')::int / 10000";
        let (syncs, full_pages) = match client.query_one(version, &[]).await.unwrap().get::<_, i32>(0) {
            ..14 => ("NULL::bigint", "NULL::bigint"),
            14..18 => ("(SELECT wal_sync FROM pg_stat_wal)", "(SELECT wal_fpi FROM pg_stat_wal)"),
            18.. => (
                "(SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal')",
                "(SELECT wal_fpi FROM pg_stat_wal)",
            ),
        };
        let all = format!("SELECT {syncs}, (pg_current_wal_insert_lsn() - '0/0')::bigint, {full_pages}");
        let row = client.query_one(&all, &[]).await.unwrap();
        Gauge { syncs: row.get(0), log_bytes: row.get(1), full_pages: row.get(2) }
    }

    /// What was done since an earlier look.
    pub fn since(&self, before: &Gauge) -> Gauge {
        let less = |now: Option<i64>, then: Option<i64>| Some(now? - then?);
        Gauge {
            syncs: less(self.syncs, before.syncs),
            log_bytes: self.log_bytes - before.log_bytes,
            full_pages: less(self.full_pages, before.full_pages),
        }
    }
}
