//! The gates that no noisy neighbour moves: what the server syncs and writes for each completed job.

use std::sync::Arc;
use std::time::Instant;

use onejob::store::{PostgresStore, Store};
use onejob_lab::postgres::{Cluster, Disk};
use onejob_lab::store_contract::ground::{does, intent, made, succeeded};
use onejob_lab::store_contract::{Ground, Kind};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_commits_and_job_rows_stay_in_their_place() {
    const CALLERS: u64 = 128;
    let jobs: u64 = std::env::var("ONEJOB_JOBS").map_or(40, |jobs| jobs.parse().unwrap());
    let cluster = Cluster::start(Disk::Durable);
    let database = cluster.database().await;
    let client = database.client().await;
    let store = Store::Postgres(Arc::new(PostgresStore::open(database.options()).await.unwrap()));
    let ground = Arc::new(Ground::new(Kind::Memory));
    // Opens connections, prepares statements, writes first pages.
    does(&store, ground.starting(&store, "warm").await.job.id, onejob_core::What::Cancel).await;
    client.batch_execute("CHECKPOINT").await.unwrap();
    let gauge = || async {
        let row = client.query_one("SELECT wal_sync, wal_bytes::bigint, wal_fpi FROM pg_stat_wal", &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2))
    };
    let (before, began) = (gauge().await, Instant::now());
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, ground) = (store.clone(), ground.clone());
            tokio::spawn(async move {
                for number in 0..jobs {
                    let mut wish = ground.started_wish("ann", &format!("{caller}-{number}"));
                    wish.id = onejob::id::new_job_id();
                    wish.start.as_mut().unwrap().attempt = onejob::id::new_attempt_id();
                    wish.intent = intent(&json!({"text": "x".repeat(200)}));
                    let record = made(&store, wish).await;
                    does(&store, record.job.id, succeeded(record.job.attempts[0].id, "{\"url\":\"x\"}")).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (took, total) = (began.elapsed(), (CALLERS * jobs) as i64);
    let work = store.work();
    store.close().await;
    // Other sessions' counts arrive with their next report.
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    let after = gauge().await;
    let (syncs, bytes) = (after.0 - before.0, after.1 - before.1);
    let hot = "SELECT n_tup_hot_upd::float8 / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = 'jobs'";
    let hot: f64 = client.query_one(hot, &[]).await.unwrap().get(0);
    println!(
        "{:.0} jobs/s; per job: {:.3} commits, {:.3} syncs, {} bytes of log ({} full pages in all); {:.0} % of the updates of jobs in place",
        total as f64 / took.as_secs_f64(),
        work.commits as f64 / total as f64,
        syncs as f64 / total as f64,
        bytes / total,
        after.2 - before.2,
        hot * 100.0
    );
    assert!(syncs * 10 <= total, "{syncs} syncs for {total} jobs");
    assert!(bytes / total <= 4_096, "{} bytes of log for each job", bytes / total);
    assert!(hot > 0.9, "{hot} of the updates of jobs in place");
}
