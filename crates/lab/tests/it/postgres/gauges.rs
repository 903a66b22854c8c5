//! The gates that no noisy neighbour moves: what the server syncs and writes for each completed job.

use std::sync::Arc;
use std::time::Instant;

use onejob::store::{PostgresStore, Store};
use onejob_lab::gauge::Gauge;
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
    let (before, began) = (Gauge::read(&client).await, Instant::now());
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
    let done = Gauge::read(&client).await.since(&before);
    // Where the server does not count its syncs, each commit may have been one.
    let syncs = done.syncs.unwrap_or_else(|| work.commits.try_into().unwrap());
    let bytes = done.log_bytes;
    let hot = "SELECT n_tup_hot_upd::float8 / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = 'jobs'";
    let hot: f64 = client.query_one(hot, &[]).await.unwrap().get(0);
    println!(
        "{:.0} jobs/s; per job: {:.3} commits, {:.3} syncs, {} bytes of log ({:?} full pages in all); {:.0} % of the updates of jobs in place",
        total as f64 / took.as_secs_f64(),
        work.commits as f64 / total as f64,
        syncs as f64 / total as f64,
        bytes / total,
        done.full_pages,
        hot * 100.0
    );
    assert!(syncs * 10 <= total, "{syncs} syncs for {total} jobs");
    assert!(bytes / total <= 4_096, "{} bytes of log for each job", bytes / total);
    assert!(hot > 0.9, "{hot} of the updates of jobs in place");
}
