//! The store of many nodes against the bare database, as ratios: the same columns, the same cluster, the same
//! run. `cargo run --release -p onejob-lab --example postgres`
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onejob::store::{PostgresStore, Store};
use onejob_lab::gauge::Gauge;
use onejob_lab::postgres::{Cluster, Database, Disk};
use onejob_lab::store_contract::ground::{does, intent, made, succeeded};
use onejob_lab::store_contract::{Ground, Kind};
use serde_json::json;

const LENGTH: Duration = Duration::from_secs(4);

const INSERT: &str = "INSERT INTO onejob.jobs (id, owner, idempotency_key, task, fingerprint_version, fingerprint, effects,
    priority, state, version, revision, tries_from, duplicates, created_at, updated_at, metadata, input)
    VALUES (gen_random_uuid(), 'ann', md5(random()::text) || md5(random()::text), 'poster', 1, sha256('x'), 'exclusive', 0,
    'running', 0, 0, 0, 0, 0, 0, '{}', repeat('x', 200)) ON CONFLICT (owner, idempotency_key) DO NOTHING;\n";

fn pgbench(cluster: &Cluster, database: &Database<'_>, clients: u32) -> f64 {
    let script = std::env::temp_dir().join(format!("onejob-insert-{}.sql", std::process::id()));
    std::fs::write(&script, INSERT).unwrap();
    let output = Command::new(cluster.programs().join("pgbench"))
        .args(["-n", "-M", "prepared", "-h", "127.0.0.1", "-U", "onejob", "-p", &cluster.port().to_string()])
        .args(["-c", &clients.to_string(), "-j", "2", "-T", &LENGTH.as_secs().to_string(), "-f"])
        .arg(&script)
        .arg(&database.name)
        .output()
        .unwrap();
    std::fs::remove_file(script).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("tps = ")).unwrap_or_else(|| panic!("{output:?}"));
    line["tps = ".len()..].split(' ').next().unwrap().parse().unwrap()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Submit,
    Life,
}

struct Measured {
    per_second: f64,
    commits: f64,
    syncs: f64,
    log_bytes: f64,
    p50_ms: f64,
}

async fn rate(database: &Database<'_>, lanes: (usize, usize), callers: usize, work: Work) -> Measured {
    let mut options = database.options();
    options.lanes = lanes;
    let store = Store::Postgres(Arc::new(PostgresStore::open(options).await.unwrap()));
    let ground = Arc::new(Ground::new(Kind::Memory));
    let client = database.client().await;
    let before = Gauge::read(&client).await;
    let end = Instant::now() + LENGTH;
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (store, ground) = (store.clone(), ground.clone());
            tokio::spawn(async move {
                let (mut done, mut starts) = (0_u32, Vec::new());
                while Instant::now() < end {
                    let key = format!("{caller}-{}", fastrand::u64(..));
                    let mut wish =
                        if work == Work::Life { ground.started_wish("ann", &key) } else { ground.wish("ann", &key) };
                    wish.id = onejob::id::new_job_id();
                    wish.intent = intent(&json!({"text": "x".repeat(200)}));
                    if let Some(start) = &mut wish.start {
                        start.attempt = onejob::id::new_attempt_id();
                    }
                    let began = Instant::now();
                    let record = made(&store, wish).await;
                    starts.push(began.elapsed());
                    if work == Work::Life {
                        does(&store, record.job.id, succeeded(record.job.attempts[0].id, "{\"url\":\"x\"}")).await;
                    }
                    done += 1;
                }
                (done, starts)
            })
        })
        .collect();
    let (mut done, mut starts) = (0, Vec::new());
    for task in tasks {
        let (more, latencies) = task.await.unwrap();
        done += more;
        starts.extend(latencies);
    }
    starts.sort();
    let commits = store.work().commits;
    store.close().await;
    let gone = Gauge::read(&client).await.since(&before);
    let each = |count: f64| count / f64::from(done);
    Measured {
        per_second: f64::from(done) / LENGTH.as_secs_f64(),
        commits: each(commits as f64),
        syncs: gone.syncs.map_or(f64::NAN, |syncs| each(syncs as f64)),
        log_bytes: each(gone.log_bytes as f64),
        p50_ms: starts[starts.len() / 2].as_secs_f64() * 1_000.0,
    }
}

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(Disk::Durable);
    let rounds: usize = std::env::args().nth(1).map_or(1, |rounds| rounds.parse().unwrap());
    let fill = std::env::args().nth(2);
    for _ in 0..rounds {
        let database = cluster.database().await;
        if let Some(fill) = &fill {
            database.shell(&format!("ALTER TABLE onejob.jobs SET (fillfactor = {fill})")).await;
        }
        let bare = pgbench(&cluster, &database, 8);
        println!("pgbench, single inserts, 8 clients: {bare:.0}/s");
        for lanes in [(1, 1), (2, 1), (2, 2)] {
            for callers in [64, 256] {
                for (work, name) in [(Work::Submit, "submit"), (Work::Life, "life")] {
                    let all = rate(&database, lanes, callers, work).await;
                    println!(
                        "{name}, {callers} callers, {lanes:?} lanes: {:.0}/s, {:.2} x pgbench, {:.3} commits, {:.3} syncs, {:.0} bytes each, p50 {:.1} ms",
                        all.per_second,
                        all.per_second / bare,
                        all.commits,
                        all.syncs,
                        all.log_bytes,
                        all.p50_ms
                    );
                }
            }
        }
        let hot = "SELECT (100 * n_tup_hot_upd / greatest(n_tup_upd, 1))::text FROM pg_stat_user_tables WHERE relname = 'jobs'";
        let hot: String = database.client().await.query_one(hot, &[]).await.unwrap().get(0);
        println!("{hot} % of the updates of jobs in place");
    }
}
