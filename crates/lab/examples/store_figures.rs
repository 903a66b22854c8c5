//! How fast the embedded store is, beside a bare loop of the same statements on the same settings:
//! `cargo run --release -p onejob-lab --example store_figures -- FILE [FINISHED_JOBS] [JOBS]`; `CACHE_MB`,
//! `CHECKPOINT_PAGES`, `REMEMBERED_MB`, `ROUNDS` and `ONLY` (`bare` or `store`) in the environment change what their names say.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onejob::store::{SqliteOptions, SqliteStore, Store};
use onejob_lab::store_contract::ground::{does, intent, made, succeeded};
use onejob_lab::store_contract::{Ground, Kind};
use rusqlite::{Connection, Statement, params};
use serde_json::json;

const CALLERS: u64 = 64;
const SUBMIT: &str = include_str!("../../onejob/src/store/sqlite/submit.sql");
const START: &str = include_str!("../../onejob/src/store/sqlite/start.sql");
const COMPLETE: &str = include_str!("../../onejob/src/store/sqlite/complete.sql");
const WRITE_ATTEMPT: &str = include_str!("../../onejob/src/store/sqlite/write_attempt.sql");

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn options() -> SqliteOptions {
    let default = SqliteOptions::default();
    SqliteOptions {
        cache_bytes: number("CACHE_MB", 256) << 20,
        checkpoint_pages: number("CHECKPOINT_PAGES", u64::from(default.checkpoint_pages)) as u32,
        remembered_bytes: (number("REMEMBERED_MB", 64) << 20) as usize,
        ..default
    }
}

fn key() -> String {
    format!("click-{:032x}", fastrand::u128(..))
}

fn owner() -> String {
    format!("user_{}", fastrand::u32(0..50_000))
}

fn insert(job: &mut Statement<'_>, attempt: &mut Statement<'_>, id: [u8; 16], input: &str, finished: bool) {
    let none: Option<&str> = None;
    let done = finished.then_some(id);
    job.execute(params![
        id,
        owner(),
        key(),
        "poster",
        none,
        1,
        [7u8; 32],
        "exclusive",
        0,
        none,
        none,
        if finished { "succeeded" } else { "running" },
        i32::from(finished),
        0,
        none,
        none,
        none,
        none,
        done,
        none,
        none,
        none,
        none,
        0,
        1,
        1,
        "{}",
        input,
        done.map(|_| "{\"url\":\"https://example.com/poster.png\"}"),
    ])
    .unwrap();
    attempt
        .execute(params![id, id, 1, "poster", "main", "main", false, true, none, [0u8; 16], 0, 1, "starting"])
        .unwrap();
}

fn finish(attempt: &mut Statement<'_>, id: [u8; 16]) {
    let none: Option<&str> = None;
    attempt
        .execute(params![
            id,
            1,
            "succeeded",
            none,
            none,
            none,
            none,
            none,
            none,
            1,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none
        ])
        .unwrap();
}

fn new_id() -> [u8; 16] {
    onejob::id::new_job_id().0.to_be_bytes()
}

/// Fills the file with finished jobs, without waiting for the disk.
fn prefill(file: &Path, jobs: u64, input: &str) {
    drop(SqliteStore::open(file, options()).unwrap());
    let db = Connection::open(file).unwrap();
    db.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -2000000").unwrap();
    let have: i64 = db.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap();
    let mut left = jobs.saturating_sub(have as u64);
    while left > 0 {
        let now = left.min(20_000);
        db.execute_batch("BEGIN").unwrap();
        let (mut job, mut attempt) = (db.prepare(SUBMIT).unwrap(), db.prepare(START).unwrap());
        let mut end = db.prepare(WRITE_ATTEMPT).unwrap();
        for _ in 0..now {
            let id = new_id();
            insert(&mut job, &mut attempt, id, input, true);
            finish(&mut end, id);
        }
        db.execute_batch("COMMIT").unwrap();
        left -= now;
    }
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    println!("{} MB", std::fs::metadata(file).unwrap().len() >> 20);
}

fn bare(file: &Path, jobs: u64, input: &str) {
    let db = Connection::open(file).unwrap();
    db.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA cache_size = -{}; PRAGMA wal_autocheckpoint = {}",
        options().cache_bytes >> 10,
        options().checkpoint_pages
    ))
    .unwrap();
    let (mut job, mut attempt) = (db.prepare(SUBMIT).unwrap(), db.prepare(START).unwrap());
    let (mut end, mut complete) = (db.prepare(WRITE_ATTEMPT).unwrap(), db.prepare(COMPLETE).unwrap());
    let (mut submitting, mut completing) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..jobs / CALLERS {
        let begun = Instant::now();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        let ids: Vec<[u8; 16]> = (0..CALLERS).map(|_| new_id()).collect();
        for id in &ids {
            insert(&mut job, &mut attempt, *id, input, false);
        }
        db.execute_batch("COMMIT").unwrap();
        submitting += begun.elapsed();
        let begun = Instant::now();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        for id in &ids {
            finish(&mut end, *id);
            complete.execute(params![id, 0, 1, id, "{\"url\":\"https://example.com/poster.png\"}", 2]).unwrap();
        }
        db.execute_batch("COMMIT").unwrap();
        completing += begun.elapsed();
    }
    report("bare", jobs, submitting, completing);
}

fn report(what: &str, jobs: u64, submitting: Duration, completing: Duration) {
    let rate = |time: Duration| jobs as f64 / time.as_secs_f64();
    println!(
        "{what:6} submit+start {:6.0}/s   complete {:6.0}/s   full life {:6.0}/s",
        rate(submitting),
        rate(completing),
        rate(submitting + completing)
    );
}

async fn stored(file: &Path, jobs: u64, input: &str) {
    let store = Store::Sqlite(Arc::new(SqliteStore::open(file, options()).unwrap()));
    let ground = Arc::new(Ground::new(Kind::Memory));
    let before = store.work();
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (store, ground, input) = (store.clone(), ground.clone(), input.to_owned());
            tokio::spawn(async move {
                let mut made_here = Vec::new();
                for _ in 0..jobs / CALLERS {
                    let mut wish = ground.started_wish(&owner(), &key());
                    wish.id = onejob::id::new_job_id();
                    wish.intent.input = input.as_str().into();
                    if let Some(start) = &mut wish.start {
                        start.attempt = onejob::id::new_attempt_id();
                    }
                    let record = made(&store, wish).await;
                    made_here.push((record.job.id, record.job.attempts[0].id));
                }
                made_here
            })
        })
        .collect();
    let mut all = Vec::new();
    for caller in callers {
        all.push(caller.await.unwrap());
    }
    let submitting = begun.elapsed();
    let middle = store.work();
    let begun = Instant::now();
    let callers: Vec<_> = all
        .into_iter()
        .map(|jobs| {
            let store = store.clone();
            tokio::spawn(async move {
                for (job, attempt) in jobs {
                    does(&store, job, succeeded(attempt, "{\"url\":\"https://example.com/poster.png\"}")).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    report("store", jobs, submitting, begun.elapsed());
    let after = store.work();
    println!(
        "       commits per job {:.3} + {:.3}   log bytes per job {} + {}",
        (middle.commits - before.commits) as f64 / jobs as f64,
        (after.commits - middle.commits) as f64 / jobs as f64,
        (middle.log_bytes - before.log_bytes) / jobs,
        (after.log_bytes - middle.log_bytes) / jobs
    );
    store.close().await;
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = std::path::PathBuf::from(arguments.next().unwrap());
    let finished: u64 = arguments.next().map_or(0, |n| n.parse().unwrap());
    let jobs: u64 = arguments.next().map_or(32_000, |n| n.parse().unwrap());
    let input = intent(&json!({"text": "x".repeat(200)})).input.to_string();
    prefill(&file, finished, &input);
    for _ in 0..number("ROUNDS", 2) {
        let only = std::env::var("ONLY").unwrap_or_default();
        if only != "store" {
            bare(&file, jobs, &input);
        }
        if only != "bare" {
            stored(&file, jobs, &input).await;
        }
    }
}
