//! When the network or the database fails: what was answered stands, what was not can be asked again, and
//! everything comes back by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onejob::id::job_text;
use onejob::store::postgres::DueBy;
use onejob::store::{Claim, PostgresOptions, PostgresStore, Record, Store, StoreError, Submitted};
use onejob_core::{AttemptStateName, Event, JobState, NodeId, Slot, Verdict, What};
use onejob_lab::postgres::{Cluster, Database, Disk};
use onejob_lab::proxy::{Cut, Proxy};
use onejob_lab::store_contract::ground::{HERE, NOW, all_jobs, does, job, kinds, made, running, succeeded};
use onejob_lab::store_contract::{Ground, Kind};

const LIMIT: Duration = Duration::from_secs(60);

/// A store whose wire to the database can be cut.
async fn behind_a_proxy(database: &Database<'_>) -> (Proxy, Store) {
    let proxy = Proxy::before(Cluster::shared().port()).await;
    let url = format!("postgres://onejob@127.0.0.1:{}/{}?notify=false", proxy.port, database.name);
    let mut options = PostgresOptions::parse(&url).unwrap();
    options.clock = DueBy::Caller;
    (proxy, Store::Postgres(Arc::new(PostgresStore::open(options).await.unwrap())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_whose_commit_gave_no_answer_is_answered_by_what_stands() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (proxy, store) = behind_a_proxy(&database).await;
    for (number, cut) in [Cut::Lost, Cut::Unanswered].into_iter().enumerate() {
        proxy.cut(&[cut]);
        let key = format!("{cut:?}");
        let record = made(&store, ground.started_wish("ann", &key)).await;
        assert_eq!(proxy.cut_so_far() as usize, number + 1);
        assert_eq!((record.job.attempts.len(), record.job.state()), (1, JobState::Running));
        assert_eq!(job(&store, record.job.id).await, record);
        assert_eq!(kinds(&store, record.job.id).await, [""; 0]);
        assert!(matches!(store.submit(ground.wish("ann", &key)).await.unwrap(), Submitted::Same(_)));
        does(&store, record.job.id, succeeded(record.job.attempts[0].id, "1")).await;
    }
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_a_completion_whose_commit_gave_no_answer_is_told_once_that_it_won() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (proxy, store) = behind_a_proxy(&database).await;
    for (number, cut) in [Cut::Lost, Cut::Unanswered].into_iter().enumerate() {
        let record = ground.starting(&store, &format!("{cut:?}")).await;
        let (id, attempt) = (record.job.id, record.job.attempts[0].id);
        proxy.cut(&[cut]);
        let (after, verdict) = does(&store, id, succeeded(attempt, "1")).await;
        assert_eq!(proxy.cut_so_far() as usize, number + 1);
        assert_eq!((verdict, &after.job.slot), (Verdict::Won, &Slot::Filled { by: attempt, result: "1".into() }));
        assert_eq!(job(&store, id).await, after);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_commit_gave_no_answer_starts_what_it_says() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (proxy, store) = behind_a_proxy(&database).await;
    for cut in [Cut::Lost, Cut::Unanswered] {
        let queued = made(&store, ground.wish("ann", &format!("{cut:?}"))).await;
        proxy.cut(&[cut]);
        let attempt = ground.attempt_id();
        let claim = Claim {
            provider: "main".into(),
            attempts: vec![attempt],
            node: HERE,
            contracts: Default::default(),
            at: NOW,
        };
        let claimed = store.claim(claim).await.unwrap();
        assert_eq!(claimed.records.len(), 1, "{cut:?}");
        let read = job(&store, queued.job.id).await;
        assert_eq!(claimed.records[0], read);
        assert_eq!(read.job.attempts.iter().map(|a| a.id).collect::<Vec<_>>(), [attempt]);
    }
    assert_eq!(proxy.cut_so_far(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_its_database_says_so_soon_and_comes_back_alone() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (proxy, store) = behind_a_proxy(&database).await;
    let record = ground.starting(&store, "before").await;
    proxy.be_away(true);
    let began = Instant::now();
    assert!(matches!(store.submit(ground.wish("ann", "away")).await, Err(StoreError::Unavailable(_))));
    let what = running(record.job.attempts[0].id);
    let applied = store.apply(record.job.id, Event { at: NOW, what: what.clone() }).await;
    assert!(matches!(applied, Err(StoreError::Unavailable(_))), "{applied:?}");
    assert!(matches!(store.job(record.job.id).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    proxy.be_away(false);
    store.ping().await.unwrap();
    made(&store, ground.wish("ann", "away")).await;
    assert_eq!(does(&store, record.job.id, what).await.1, Verdict::Recorded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_is_refused_by_name_and_its_neighbours_are_served() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = Store::Postgres(Arc::new(database.store().await));
    let broken = ground.starting(&store, "broken").await;
    let sound = ground.starting(&store, "sound").await;
    store.close().await;
    database.shell("UPDATE onejob.jobs SET state = 'unknown' WHERE idempotency_key = 'broken'").await;
    let store = Store::Postgres(Arc::new(database.store().await));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_holds_up_neither_the_line_nor_the_reaper() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = Store::Postgres(Arc::new(database.store().await));
    for key in ["damaged", "sound"] {
        made(&store, ground.wish("ann", key)).await;
        made(&store, ground.started_wish("ann", &format!("{key}, live"))).await;
    }
    store.close().await;
    database.shell("UPDATE onejob.jobs SET version = -1 WHERE idempotency_key LIKE 'damaged%'").await;
    let store = Store::Postgres(Arc::new(database.store().await));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_cannot_hold_is_refused_alone_and_what_providers_say_is_kept() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = Store::Postgres(Arc::new(database.store().await));
    let posts: Vec<_> = ["good", "bad", "fine"]
        .map(|key| {
            let owner = if key == "bad" { "an\0n" } else { "ann" };
            let (store, wish) = (store.clone(), ground.started_wish(owner, key));
            tokio::spawn(async move { store.submit(wish).await })
        })
        .into();
    let mut answers = Vec::new();
    for post in posts {
        answers.push(post.await.unwrap());
    }
    assert!(matches!(answers[1], Err(StoreError::Refused(_))), "{:?}", answers[1]);
    let Ok(Submitted::New(record)) = &answers[0] else { panic!("{:?}", answers[0]) };
    assert!(matches!(answers[2], Ok(Submitted::New(_))));
    let handle = What::Handle { attempt: record.job.attempts[0].id, handle: "h\0-1".into() };
    does(&store, record.job.id, handle).await;
    let attempt = job(&store, record.job.id).await.job.attempts[0].clone();
    assert_eq!((attempt.handle.as_deref(), attempt.state.name()), (Some("h\u{fffd}-1"), AttemptStateName::Running));
}

/// R10: the server crashes twice under load. Whatever was acknowledged is there afterwards, no job has two
/// results, and every key that was not acknowledged can be asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r10_nothing_acknowledged_is_lost_when_the_server_crashes() {
    const CALLERS: usize = 16;
    let ground = Arc::new(Ground::new(Kind::Memory));
    let cluster = Cluster::start(Disk::Durable);
    let database = cluster.database().await;
    let store = Store::Postgres(Arc::new(database.store().await));
    let ended = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, ground, ended) = (store.clone(), ground.clone(), ended.clone());
            tokio::spawn(async move {
                let mut acknowledged = HashMap::new();
                for number in 0.. {
                    if ended.load(Ordering::SeqCst) {
                        break;
                    }
                    let key = format!("{caller}-{number}");
                    let record = loop {
                        match store.submit(ground.started_wish("ann", &key)).await {
                            Ok(Submitted::New(record) | Submitted::Same(record)) => break record,
                            Ok(other) => panic!("{other:?}"),
                            Err(StoreError::Refused(why)) => panic!("{why}"),
                            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                        }
                    };
                    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
                    let event = Event { at: NOW, what: succeeded(attempt, "1") };
                    while let Err(error) = store.apply(id, event.clone()).await {
                        assert!(!matches!(error, StoreError::Refused(_)), "{error}");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    acknowledged.insert(key, id);
                }
                acknowledged
            })
        })
        .collect();
    for _ in 0..2 {
        let least = store.work().commits + 40;
        let some_work = async {
            while store.work().commits < least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, some_work).await.unwrap();
        tokio::task::block_in_place(|| {
            cluster.stop("immediate");
            cluster.start_again();
        });
    }
    let back = async { while store.ping().await.is_err() {} };
    tokio::time::timeout(LIMIT, back).await.unwrap();
    ended.store(true, Ordering::SeqCst);
    let mut acknowledged = HashMap::new();
    for caller in callers {
        acknowledged.extend(caller.await.unwrap());
    }
    let jobs = store.list_jobs(all_jobs()).await.unwrap();
    let of_key: HashMap<_, _> = jobs.iter().map(|record| (record.idempotency_key.to_string(), record)).collect();
    assert_eq!(jobs.len(), of_key.len());
    for (key, id) in &acknowledged {
        let record = of_key[key];
        assert_eq!((record.job.id, record.job.state()), (*id, JobState::Succeeded), "{key}");
    }
    assert!(acknowledged.len() > CALLERS);
    assert!(jobs.iter().all(|record| record.job.unsound().is_none()));
    store.close().await;
}

/// R10: no timeout of ours may end a commit's wait for the standby: PostgreSQL would keep it on this server
/// alone and say that it went well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r10_nothing_is_acknowledged_that_a_synchronous_standby_does_not_have() {
    let ground = Ground::new(Kind::Memory);
    let primary = Cluster::start(Disk::Durable);
    let database = primary.database().await;
    let standby = primary.standby().await;
    let mut options = database.options();
    options.clock = DueBy::Caller;
    options.statement_timeout = Duration::from_secs(1);
    options.resolve_within = Duration::from_secs(1);
    let store = Store::Postgres(Arc::new(PostgresStore::open(options).await.unwrap()));
    made(&store, ground.wish("ann", "before")).await;
    tokio::task::block_in_place(|| standby.stop("fast"));
    let wish = ground.wish("ann", "away");
    let posted = store.submit(wish.clone()).await;
    assert!(matches!(posted, Err(StoreError::OutcomeUnknown(_))), "{posted:?}");
    tokio::task::block_in_place(|| standby.start_again());
    let back = async {
        loop {
            match store.submit(wish.clone()).await {
                Ok(submitted) => break submitted,
                Err(error) => assert!(!matches!(error, StoreError::Refused(_)), "{error}"),
            }
        }
    };
    let submitted = tokio::time::timeout(LIMIT, back).await.unwrap();
    assert!(matches!(submitted, Submitted::New(_) | Submitted::Same(_)), "{submitted:?}");
}
