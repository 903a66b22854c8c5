//! Hot statements walk along an index, whatever the planner knows: on empty tables, after a bulk load that
//! nobody analyzed, and with statistics. A plan that is made once and kept must be good for all three.

use std::fmt::Write as _;

use onejob::store::postgres;
use onejob_lab::postgres::{Cluster, Database};
use tokio_postgres::Client;

/// Statements that may sort, because what they sort is small or was asked for: an owner's few jobs, the
/// jobs of a page, the rows to lock, live attempts.
const MAY_SORT: [&str; 6] = [
    "list_jobs_of_owner.sql",
    "list_jobs_running.sql",
    "list_jobs_unknown.sql",
    "list_attempts_live.sql",
    "lock.sql",
    "hold_certificates.sql",
];

/// Statements that look at all of a table that is always small.
const MAY_WALK: [&str; 3] = ["nodes.sql", "fence.sql", "forget_nodes.sql"];

/// Statements that walk along a whole index: of a table or a part of one that is always small, or as far
/// as their limit.
const MAY_WALK_AN_INDEX: [&str; 12] = [
    "nodes.sql",
    "fence.sql",
    "forget_nodes.sql",
    "schema_version.sql",
    "reap.sql",
    "claim.sql",
    "list_jobs_running.sql",
    "list_jobs_queued.sql",
    "queued_deadlines.sql",
    "next_due.sql",
    "count_queued.sql",
    "count_unknown.sql",
];

/// The version whose plans are written down.
const WRITTEN_ON: i32 = 15;

async fn connection(database: &Database<'_>) -> Client {
    let client = database.client().await;
    for (name, value) in postgres::settings() {
        client.batch_execute(&format!("SET {name} = {value}")).await.unwrap();
    }
    client.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    client
}

async fn prepare(client: &Client) {
    for (number, (file, text)) in postgres::statements().enumerate() {
        let sql = format!("PREPARE plan_{number} AS {text}");
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{file}: {error:?}"));
    }
}

/// The plan of each prepared statement, without costs.
async fn plans(client: &Client) -> String {
    let mut text = String::new();
    for (number, (file, statement)) in postgres::statements().enumerate() {
        let parameters = (1..).take_while(|n| statement.contains(&format!("${n}::"))).map(|_| "NULL");
        let parameters = parameters.collect::<Vec<_>>().join(", ");
        let call = if parameters.is_empty() { String::new() } else { format!("({parameters})") };
        let explain = format!("EXPLAIN (COSTS OFF) EXECUTE plan_{number}{call}");
        let rows = client.query(&explain, &[]).await.unwrap_or_else(|error| panic!("{file}: {error:?}"));
        writeln!(text, "\n{file}").unwrap();
        let steps: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        for (number, step) in steps.iter().enumerate() {
            let bounded = steps.get(number + 1).is_some_and(|next| next.contains("Index Cond"));
            let walks = step.contains("Index Scan") || step.contains("Index Only Scan");
            assert!(!walks || bounded || MAY_WALK_AN_INDEX.contains(&file), "{file} walks a whole index: {step}");
            assert!(!step.contains("Gather"), "{file} asks other processes to help: {step}");
            assert!(!step.contains("Seq Scan") || MAY_WALK.contains(&file), "{file} walks a table: {step}");
            assert!(!step.contains("Sort Key") || MAY_SORT.contains(&file), "{file} sorts: {step}");
            assert!(!step.contains("Hash Join") && !step.contains("Merge Join"), "{file} joins at large: {step}");
            writeln!(text, "    {step}").unwrap();
        }
    }
    text
}

/// Finished jobs, some queued, some unknown.
async fn load(client: &Client, jobs: i64) {
    client
        .batch_execute(&format!(
            "INSERT INTO onejob.jobs (id, owner, idempotency_key, task, fingerprint_version, fingerprint, effects,
                priority, state, version, revision, tries_from, next_provider, next_primary, due_at, completed_by, result,
                duplicates, created_at, updated_at, metadata, input)
            SELECT lpad(to_hex(n), 32, '0')::uuid, 'o' || n % 100, 'k' || n, 't', 1, decode(repeat('00', 32), 'hex'),
                'exclusive', n % 7, s.state, 0, 0, 0,
                CASE WHEN s.state = 'queued' THEN 'main' END, CASE WHEN s.state = 'queued' THEN 'main' END,
                CASE WHEN s.state = 'queued' THEN n END,
                CASE WHEN s.state = 'succeeded' THEN lpad(to_hex(n), 32, '0')::uuid END,
                CASE WHEN s.state = 'succeeded' THEN '1' END, 0, 0, 0, '{{}}', '1'
            FROM generate_series(1, {jobs}) AS n, LATERAL (SELECT CASE n % 50 WHEN 0 THEN 'queued' WHEN 1 THEN 'unknown'
                ELSE 'succeeded' END AS state) AS s;
            INSERT INTO onejob.queue SELECT id, next_provider, priority, due_at, due_at FROM onejob.jobs
                WHERE state = 'queued';
            INSERT INTO onejob.attempts (id, job_id, number, task, provider, primary_provider, by_hand, exclusive, node,
                version_read, started_at, state, cause, unknown_since, finished_at)
            SELECT id, id, 1, 't', 'main', 'main', false, true, id, 0, 0, state,
                CASE WHEN state = 'unknown' THEN 'timeout' END, CASE WHEN state = 'unknown' THEN 0 END,
                CASE WHEN state = 'succeeded' THEN 0 END
            FROM onejob.jobs WHERE state <> 'queued'"
        ))
        .await
        .unwrap();
}

/// The plans of this version are those that are written down.
fn is_written_down(name: &str, text: &str) {
    let file = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../onejob/src/store/postgres").join(name);
    if std::env::var_os("ONEJOB_BLESS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(stored, text, "ONEJOB_BLESS=1 writes {} anew", file.display());
}

/// `ONEJOB_ROWS=1000000` fills the tables with a million jobs; that takes about a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_keep_their_plans_on_empty_tables_on_full_ones_and_with_statistics() {
    let rows = std::env::var("ONEJOB_ROWS").map_or(20_000, |rows| rows.parse().unwrap());
    let database = Cluster::shared().database().await;
    for table in ["jobs", "attempts", "queue"] {
        database.shell(&format!("ALTER TABLE onejob.{table} SET (autovacuum_enabled = off)")).await;
    }
    let early = connection(&database).await;
    prepare(&early).await;
    let empty = plans(&early).await;
    load(&early, rows).await;
    // A plan that is kept, and one that is made now without statistics.
    plans(&early).await;
    let late = connection(&database).await;
    prepare(&late).await;
    plans(&late).await;
    database.shell("ANALYZE").await;
    let analyzed = connection(&database).await;
    prepare(&analyzed).await;
    let full = plans(&analyzed).await;
    let version = early.query_one("SELECT current_setting('server_version_num')::int / 10000", &[]).await.unwrap();
    // Other versions word some steps in another way; no walk and no sort is asked of all of them.
    if version.get::<_, i32>(0) == WRITTEN_ON {
        let how = format!("How PostgreSQL {WRITTEN_ON} carries out each statement");
        is_written_down("plans.txt", &format!("{how}, on empty tables. A test keeps it true.\n{empty}"));
        let at_size = "with statistics of full tables: 20,000 jobs or a million. A test keeps it true.";
        is_written_down("plans_full.txt", &format!("{how}, {at_size}\n{full}"));
    }
}
