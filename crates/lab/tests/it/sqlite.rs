//! What only the embedded store must show: its file, its lock, its disk, its batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onejob::id::job_text;
use onejob::store::{Applied, Claim, OpenError, Record, SqliteOptions, SqliteStore, Store, StoreError, Submitted};
use onejob_core::{Event, JobState, NodeId, Slot, Verdict, What};
use onejob_lab::store_contract::ground::{Gate, NOW, all_jobs, does, intent, job, kinds, made, succeeded};
use onejob_lab::store_contract::{Ground, Kind};
use serde_json::json;
use tempfile::TempDir;

/// A maker of wishes, ids and events; its own stores are not used here.
fn ground() -> Ground {
    Ground::new(Kind::Memory)
}

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("onejob.db");
    (dir, file)
}

fn open(file: &Path) -> Store {
    open_with(file, SqliteOptions::default())
}

fn open_with(file: &Path, options: SqliteOptions) -> Store {
    Store::Sqlite(Arc::new(SqliteStore::open(file, options).unwrap()))
}

fn shell(file: &Path, sql: &str) {
    rusqlite::Connection::open(file).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn r10_what_was_answered_is_in_the_file_whatever_becomes_of_the_process() {
    let (ground, (dir, file)) = (ground(), place());
    let store = open(&file);
    let mut jobs = vec![made(&store, ground.wish("ann", "queued")).await, ground.starting(&store, "started").await];
    let (id, winner, loser) = ground.racing(&store, "raced").await;
    does(&store, id, succeeded(winner, "1")).await;
    jobs.push(does(&store, id, succeeded(loser, "2")).await.0);
    jobs.reverse();
    // What the disk holds now is what a killed process leaves behind.
    let killed = dir.path().join("killed.db");
    std::fs::copy(&file, &killed).unwrap();
    std::fs::copy(dir.path().join("onejob.db-wal"), dir.path().join("killed.db-wal")).unwrap();
    let after = open(&killed);
    assert_eq!(after.list_jobs(all_jobs()).await.unwrap(), jobs);
    assert_eq!(kinds(&after, id).await, ["duplicate_effect"]);
    assert!(matches!(
        after.submit(ground.wish("ann", "raced")).await.unwrap(),
        Submitted::OtherIntent(_) | Submitted::Same(_)
    ));
    // A polite end folds the log into the file.
    store.close().await;
    assert!(!dir.path().join("onejob.db-wal").exists());
    assert_eq!(open(&file).list_jobs(all_jobs()).await.unwrap(), jobs);
}

#[tokio::test]
async fn a_dropped_store_finishes_what_it_took_on_and_lets_go_at_once() {
    let (ground, (_dir, file)) = (ground(), place());
    for round in 0..5 {
        let store = open(&file);
        let posts: Vec<_> = (0..50)
            .map(|number| {
                let (store, wish) = (store.clone(), ground.wish("ann", &format!("{round}-{number}")));
                tokio::spawn(async move { store.submit(wish).await.unwrap() })
            })
            .collect();
        for post in posts {
            post.await.unwrap();
        }
        drop(store);
    }
    assert_eq!(open(&file).list_jobs(all_jobs()).await.unwrap().len(), 250);
}

#[tokio::test]
async fn a_second_owner_of_a_file_is_refused_and_told_who_has_it() {
    let (_dir, file) = place();
    let store = open(&file);
    let Err(error) = SqliteStore::open(&file, SqliteOptions::default()) else { panic!("two owners") };
    assert!(matches!(error, OpenError::InUse { process: Some(id), .. } if id == std::process::id()), "{error}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    store.close().await;
    open(&file).close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn another_name_of_a_file_is_the_same_file() {
    let (dir, file) = place();
    let store = open(&file);
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(matches!(SqliteStore::open(&link, SqliteOptions::default()), Err(OpenError::InUse { .. })));
    store.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_a_file_that_is_not_there_yet_is_the_same_file() {
    let (dir, file) = place();
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let store = open(&link);
    assert!(matches!(SqliteStore::open(&file, SqliteOptions::default()), Err(OpenError::InUse { .. })));
    store.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_with_a_second_name_is_refused_by_either() {
    let (dir, file) = place();
    let store = open(&file);
    let second = dir.path().join("second.db");
    std::fs::hard_link(&file, &second).unwrap();
    let refused =
        |name| matches!(SqliteStore::open(name, SqliteOptions::default()), Err(OpenError::ManyNames { names: 2, .. }));
    assert!(refused(&second), "two owners of one file");
    store.close().await;
    assert!(refused(&file));
    std::fs::remove_file(&second).unwrap();
    open(&file).close().await;
}

#[tokio::test]
async fn a_file_that_is_no_database_and_a_folder_that_is_not_there_are_refused_with_a_sentence() {
    let (dir, file) = place();
    std::fs::write(&file, "not a database, but long enough to be read as one".repeat(100)).unwrap();
    for path in [file, dir.path().join("nowhere/onejob.db")] {
        let Err(error) = SqliteStore::open(&path, SqliteOptions::default()) else { panic!("opened") };
        assert!(error.to_string().starts_with("cannot open "), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_row_is_refused_by_name_and_its_neighbours_are_served() {
    let (ground, (_dir, file)) = (ground(), place());
    let store = open(&file);
    let broken = ground.starting(&store, "broken").await;
    let sound = ground.starting(&store, "sound").await;
    store.close().await;
    shell(&file, "UPDATE jobs SET state = 'unknown' WHERE idempotency_key = 'broken'");
    let store = open(&file);
    let (id, attempt) = (broken.job.id, broken.job.attempts[0].id);
    let read = store.job(id).await.unwrap_err();
    assert!(matches!(&read, StoreError::Refused(why) if why.contains(&job_text(id))), "{read}");
    let write = store.apply(id, Event { at: NOW, what: succeeded(attempt, "1") }).await;
    assert!(matches!(write, Err(StoreError::Refused(_))), "{write:?}");
    let again = store.submit(ground.wish("ann", "broken")).await;
    assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
    assert_eq!(job(&store, sound.job.id).await, sound);
    does(&store, sound.job.id, succeeded(sound.job.attempts[0].id, "1")).await;
}

#[tokio::test]
async fn a_damaged_row_holds_up_neither_the_line_nor_the_start() {
    let (ground, (_dir, file)) = (ground(), place());
    let store = open(&file);
    for key in ["damaged", "sound"] {
        made(&store, ground.wish("ann", key)).await;
        made(&store, ground.started_wish("ann", &format!("{key}, live"))).await;
    }
    store.close().await;
    shell(&file, "UPDATE jobs SET version = -1 WHERE idempotency_key LIKE 'damaged%'");
    let store = open(&file);
    let keys = |records: &[Arc<Record>]| records.iter().map(|r| r.idempotency_key.to_string()).collect::<Vec<_>>();
    let node = NodeId(u128::MAX);
    assert_eq!(keys(&store.reap(node, NOW, 10).await.unwrap()), ["sound, live"]);
    let attempts = vec![ground.attempt_id(), ground.attempt_id()];
    let claimed = store
        .claim(Claim { provider: "main".into(), attempts, node, contracts: Default::default(), at: NOW })
        .await
        .unwrap();
    assert_eq!((keys(&claimed.records), claimed.next_due), (vec!["sound".to_owned()], None), "nobody waits for it");
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let (ground, (_dir, file)) = (ground(), place());
    let store = open_with(&file, SqliteOptions { max_pages: Some(128), ..SqliteOptions::default() });
    let mut made_it = Vec::new();
    let refused = loop {
        // Without an end this would fill the memory where nothing fills the disk.
        assert!(made_it.len() < 1_000, "the disk never got full");
        let mut wish = ground.started_wish("ann", &format!("key-{}", made_it.len()));
        wish.metadata = format!("{{\"m\":\"{}\"}}", "x".repeat(3_000)).into();
        match store.submit(wish).await {
            Ok(Submitted::New(record)) => made_it.push(record),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, StoreError::Unavailable(why) if why.contains("full")), "{refused}");
    assert!(made_it.len() > 10);
    // It lives on: what it holds can be read, and what needs no room can be written.
    let (id, attempt) = (made_it[0].job.id, made_it[0].job.attempts[0].id);
    assert_eq!(does(&store, id, succeeded(attempt, "1")).await.1, Verdict::Won);
    store.ping().await.unwrap();
    store.close().await;
    // With room again, the same key goes through, and nothing of the refused post stands.
    let store = open(&file);
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap().len(), made_it.len());
    made(&store, ground.started_wish("ann", &format!("key-{}", made_it.len()))).await;
}

/// Two processes write to one file: the lock beside it was taken away. The first decision is held
/// open inside its transaction; the second must wait for it and decide on what it left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_two_owners_of_one_file_still_give_a_job_one_winner() {
    let (ground, (dir, file), gate) = (ground(), place(), Gate::default());
    let options = || SqliteOptions { remembered_bytes: 0, hold: Some(gate.hold()), ..SqliteOptions::default() };
    let here = open_with(&file, options());
    std::fs::remove_file(dir.path().join("onejob.db.lock")).unwrap();
    let there = open_with(&file, options());
    let (id, one, two) = ground.racing(&here, "click").await;
    gate.arm();
    let complete = |store: &Store, attempt, result: &str| {
        let (store, what) = (store.clone(), succeeded(attempt, result));
        tokio::spawn(async move { store.apply(id, Event { at: NOW, what }).await.unwrap() })
    };
    let first = complete(&here, one, "1");
    let waiting = gate.clone();
    tokio::task::spawn_blocking(move || waiting.wait_for_the_first()).await.unwrap();
    let second = complete(&there, two, "2");
    let verdict = |applied| match applied {
        Applied::Done { verdict, .. } => verdict,
        other => panic!("{other:?}"),
    };
    assert_eq!(verdict(first.await.unwrap()), Verdict::Won);
    assert_eq!(verdict(second.await.unwrap()), Verdict::Superseded { by: Some(one) });
    assert_eq!(job(&there, id).await.job.slot, Slot::Filled { by: one, result: "1".into() });
}

/// What the writer remembers is out of date, for somebody else wrote: the guards say so, the batch is
/// rolled back and decided anew on the row as it is.
#[tokio::test]
async fn r6_a_stale_memory_is_stopped_by_the_guards() {
    let (ground, (dir, file)) = (ground(), place());
    let here = open(&file);
    let record = ground.starting(&here, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    std::fs::remove_file(dir.path().join("onejob.db.lock")).unwrap();
    let there = open(&file);
    does(&there, id, What::Cancel).await;
    let (after, verdict) = does(&here, id, succeeded(attempt, "1")).await;
    assert_eq!((verdict, after.job.state()), (Verdict::Superseded { by: None }, JobState::Cancelled));
    assert_eq!(job(&there, id).await, after);
}

/// The gates that no noisy neighbour moves: durable commits and bytes written per completed job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_a_commit() {
    const CALLERS: u64 = 64;
    const JOBS: u64 = 20;
    let (ground, (_dir, file)) = (Arc::new(ground()), place());
    let store = open(&file);
    let before = store.work();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, ground) = (store.clone(), ground.clone());
            tokio::spawn(async move {
                for number in 0..JOBS {
                    let mut wish = ground.started_wish("ann", &format!("{caller}-{number}"));
                    wish.intent = intent(&json!({"text": "x".repeat(200)}));
                    let record = made(&store, wish).await;
                    does(&store, record.job.id, succeeded(record.job.attempts[0].id, "{\"url\":\"x\"}")).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let (after, jobs) = (store.work(), CALLERS * JOBS);
    let (commits, bytes) = (after.commits - before.commits, after.log_bytes - before.log_bytes);
    assert_eq!(after.commands - before.commands, 2 * jobs);
    assert!(commits * 10 <= jobs, "{commits} commits for {jobs} jobs");
    assert!(bytes / jobs <= 16_384, "{} bytes per job", bytes / jobs);
    println!("{} commits and {} bytes per job", commits as f64 / jobs as f64, bytes / jobs);
}
