//! Two nodes at one database.

use std::collections::HashMap;
use std::sync::Arc;

use onejob::store::postgres::DueBy;
use onejob::store::{Applied, Claim, PostgresStore, Prune, Store, Submit, Submitted};
use onejob_core::{Event, JobId, JobState, NodeId, Slot, Start, Trigger, Verdict, What};
use onejob_lab::postgres::{Cluster, Database};
use onejob_lab::store_contract::ground::{Gate, HERE, NOW, all_jobs, does, intent, job, made, succeeded};
use onejob_lab::store_contract::{Ground, Kind};
use serde_json::json;

/// What a node remembers of jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Good,
    None,
}

async fn node(database: &Database<'_>, memory: Memory, gate: &Gate) -> Store {
    let mut options = database.options();
    (options.clock, options.hold) = (DueBy::Caller, Some(gate.hold()));
    if memory == Memory::None {
        options.remembered_bytes = 0;
    }
    Store::Postgres(Arc::new(PostgresStore::open(options).await.unwrap()))
}

fn verdict(applied: Applied) -> Verdict {
    match applied {
        Applied::Done { verdict, .. } => verdict,
        other => panic!("{other:?}"),
    }
}

/// The first decision is held open while the second node decides too.
async fn race_completions(memory: Memory) -> (Verdict, Verdict) {
    let (ground, gate) = (Ground::new(Kind::Memory), Gate::default());
    let database = Cluster::shared().database().await;
    let (here, there) = (node(&database, memory, &gate).await, node(&database, memory, &gate).await);
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
    let verdicts = (verdict(first.await.unwrap()), verdict(second.await.unwrap()));
    let read = job(&there, id).await;
    assert_eq!(read.job.unsound(), None);
    let (winner, result) = if verdicts.0 == Verdict::Won { (one, "1") } else { (two, "2") };
    assert_eq!(read.job.slot, Slot::Filled { by: winner, result: result.into() });
    assert_eq!(job(&here, id).await, read);
    verdicts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn r6_of_two_nodes_that_hold_and_read_the_row_the_first_to_hold_it_wins() {
    let (first, second) = race_completions(Memory::None).await;
    assert_eq!(first, Verdict::Won);
    assert!(matches!(second, Verdict::Superseded { by: Some(_) }), "{second:?}");
}

/// The first decides on what it remembers and holds nothing; the guards tell it that it is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn r6_a_stale_memory_is_stopped_by_the_guards() {
    let (first, second) = race_completions(Memory::Good).await;
    assert_eq!(second, Verdict::Won);
    assert!(matches!(first, Verdict::Superseded { by: Some(_) }), "{first:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_remembers_answers_with_the_job_as_it_is() {
    let (ground, gate) = (Ground::new(Kind::Memory), Gate::default());
    let database = Cluster::shared().database().await;
    let (here, there) = (node(&database, Memory::Good, &gate).await, node(&database, Memory::Good, &gate).await);
    let record = ground.starting(&here, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    // Counting is no change: the memory stays good and its count does not.
    let Submitted::Same(_) = there.submit(ground.wish("ann", "click")).await.unwrap() else { panic!() };
    let Submitted::Same(counted) = here.submit(ground.wish("ann", "click")).await.unwrap() else { panic!() };
    assert_eq!(counted.duplicates, 2);
    does(&there, id, What::Cancel).await;
    // What needs no write is looked up.
    let (same, repeated) = does(&here, id, What::Cancel).await;
    assert_eq!((same.job.state(), repeated), (JobState::Cancelled, Verdict::AlreadySo));
    let (after, verdict) = does(&here, id, succeeded(attempt, "1")).await;
    assert_eq!((verdict, after.job.state()), (Verdict::Superseded { by: None }, JobState::Cancelled));
    assert_eq!(job(&there, id).await, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn r1_hot_keys_on_two_nodes_make_one_job_each() {
    const KEYS: usize = 50;
    const TASKS: usize = 64;
    let (ground, gate) = (Arc::new(Ground::new(Kind::Memory)), Gate::default());
    let database = Cluster::shared().database().await;
    let nodes = [node(&database, Memory::Good, &gate).await, node(&database, Memory::Good, &gate).await];
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store, ground) = (nodes[task % 2].clone(), ground.clone());
            tokio::spawn(async move {
                let mut made_here: Vec<(usize, JobId, bool)> = Vec::new();
                for step in 0..KEYS {
                    let key = (task * 7 + step * 3) % KEYS;
                    // Now and then with another intent.
                    let n = usize::from((task + step) % 9 == 0);
                    let wish = Submit {
                        intent: intent(&json!({"n": n})),
                        ..ground.started_wish("ann", &format!("key-{key}"))
                    };
                    match store.submit(wish).await.unwrap() {
                        Submitted::New(record) => made_here.push((key, record.job.id, true)),
                        Submitted::Same(record) | Submitted::OtherIntent(record) => {
                            made_here.push((key, record.job.id, false));
                        }
                        Submitted::Expired(tombstone) => panic!("{tombstone:?}"),
                    }
                }
                made_here
            })
        })
        .collect();
    let mut of_key: HashMap<usize, (JobId, u32)> = HashMap::new();
    for task in tasks {
        for (key, id, is_new) in task.await.unwrap() {
            let entry = of_key.entry(key).or_insert((id, 0));
            assert_eq!(entry.0, id, "two jobs for one key");
            entry.1 += u32::from(is_new);
        }
    }
    assert_eq!(of_key.len(), KEYS);
    assert!(of_key.values().all(|(_, made)| *made == 1), "{of_key:?}");
    let jobs = nodes[0].list_jobs(all_jobs()).await.unwrap();
    assert_eq!(jobs.len(), KEYS);
    assert!(jobs.iter().all(|record| record.job.attempts.len() == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_nodes_never_claim_the_same_job_and_leave_none() {
    const JOBS: usize = 200;
    let (ground, gate) = (Arc::new(Ground::new(Kind::Memory)), Gate::default());
    let database = Cluster::shared().database().await;
    let nodes = [node(&database, Memory::Good, &gate).await, node(&database, Memory::None, &gate).await];
    for number in 0..JOBS {
        made(&nodes[number % 2], Submit { priority: (number % 3) as i32, ..ground.wish("ann", &format!("{number}")) })
            .await;
    }
    let claims: Vec<_> = (0..8)
        .map(|claimer| {
            let (store, ground) = (nodes[claimer % 2].clone(), ground.clone());
            tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let attempts = (0..7).map(|_| ground.attempt_id()).collect();
                    let wish =
                        Claim { provider: "main".into(), attempts, node: HERE, contracts: Default::default(), at: NOW };
                    let claimed = store.claim(wish).await.unwrap();
                    got.extend(claimed.records.iter().map(|record| record.job.id));
                    if claimed.next_due.is_none() {
                        return got;
                    }
                }
            })
        })
        .collect();
    let mut got = Vec::new();
    for claim in claims {
        got.extend(claim.await.unwrap());
    }
    got.sort();
    let count = got.len();
    got.dedup();
    assert_eq!((count, got.len()), (JOBS, JOBS));
    let left: i64 = database.client().await.query_one("SELECT count(*) FROM onejob.queue", &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}

/// R12: between a prune and a post of the same key the post finds the job or its tombstone, never neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn r12_a_post_that_meets_a_prune_never_runs_again() {
    const JOBS: usize = 60;
    let (ground, gate) = (Arc::new(Ground::new(Kind::Memory)), Gate::default());
    let database = Cluster::shared().database().await;
    let nodes = [node(&database, Memory::Good, &gate).await, node(&database, Memory::Good, &gate).await];
    for number in 0..JOBS {
        let record = ground.starting(&nodes[0], &format!("{number}")).await;
        does(&nodes[0], record.job.id, succeeded(record.job.attempts[0].id, "1")).await;
    }
    let posts: Vec<_> = (0..4)
        .map(|task| {
            let (store, ground) = (nodes[task % 2].clone(), ground.clone());
            tokio::spawn(async move {
                loop {
                    let mut expired = 0;
                    for number in 0..JOBS {
                        let start = Start { node: NodeId(1), ..ground.start("main", Trigger::Plan) };
                        let wish = Submit { start: Some(start), ..ground.wish("ann", &format!("{number}")) };
                        match store.submit(wish).await.unwrap() {
                            Submitted::Same(record) => assert_eq!(record.job.state(), JobState::Succeeded),
                            Submitted::Expired(_) => expired += 1,
                            other => panic!("it ran again: {other:?}"),
                        }
                    }
                    if expired == JOBS {
                        return;
                    }
                }
            })
        })
        .collect();
    let mut after = Some(JobId(0));
    while let Some(from) = after {
        let step = Prune { after: from, ended_before: NOW + 1, limit: 7 };
        after = nodes[1].prune(step).await.unwrap().next;
    }
    for post in posts {
        post.await.unwrap();
    }
    assert_eq!(nodes[0].list_jobs(all_jobs()).await.unwrap(), []);
    let left: i64 =
        database.client().await.query_one("SELECT count(*) FROM onejob.attempts", &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}
