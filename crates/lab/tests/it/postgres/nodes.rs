//! Leases, the dead, the database's clock, and what nodes tell each other.

use std::sync::Arc;
use std::time::Duration;

use onejob::store::{Changed, Claim, Heard, Node, PostgresStore, Renewed, Store, Submit};
use onejob_core::{AttemptStateName, Event, JobState, NodeId, Start, Trigger, Verdict, What};
use onejob_lab::postgres::{Cluster, Database};
use onejob_lab::store_contract::ground::{NOW, does, job, made, plan, succeeded};
use onejob_lab::store_contract::{Ground, Kind};

const LEASE: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(60);

async fn store(database: &Database<'_>) -> Store {
    Store::Postgres(Arc::new(database.store().await))
}

async fn enter(store: &Store, id: u128) -> NodeId {
    let node = Node { id: NodeId(id), name: format!("node-{id}").into() };
    store.enter(node, LEASE).await.unwrap();
    NodeId(id)
}

fn started_by(ground: &Ground, node: NodeId, key: &str) -> Submit {
    let start = Start { node, ..ground.start("main", Trigger::Plan) };
    Submit { start: Some(start), ..ground.wish("ann", key) }
}

/// Its lease ended a moment ago.
async fn let_lapse(database: &Database<'_>, node: NodeId) {
    let id = format!("lpad(to_hex({}), 32, '0')::uuid", node.0);
    database.shell(&format!("UPDATE onejob.nodes SET lease_until = onejob.now_ms() - 1 WHERE id = {id}")).await;
}

/// It has been there for longer than any lease.
async fn has_been_there(database: &Database<'_>, node: NodeId) {
    let id = format!("lpad(to_hex({}), 32, '0')::uuid", node.0);
    database.shell(&format!("UPDATE onejob.nodes SET held_since = onejob.now_ms() - 60000 WHERE id = {id}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_what_a_dead_node_left_open_is_unknown_and_its_late_answer_counts() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (here, there) = (store(&database).await, store(&database).await);
    let (alive, dead) = (enter(&here, 1).await, enter(&there, 2).await);
    has_been_there(&database, alive).await;
    let left = made(&there, started_by(&ground, dead, "left")).await;
    let ours = made(&here, started_by(&ground, alive, "ours")).await;
    // It lives: nothing happens to it, whoever asks.
    assert_eq!(here.reap(alive, NOW, 10).await.unwrap(), []);
    assert_eq!(there.reap(dead, NOW, 10).await.unwrap(), []);
    let_lapse(&database, dead).await;
    let reaped = here.reap(alive, NOW + 5, 10).await.unwrap();
    assert_eq!(reaped.iter().map(|record| record.job.id).collect::<Vec<_>>(), [left.job.id]);
    assert_eq!(job(&here, left.job.id).await.job.state(), JobState::Unknown);
    assert_eq!(job(&here, ours.job.id).await, ours);
    // Dead for ever, though it comes back.
    assert_eq!(there.renew(dead, LEASE).await.unwrap(), Renewed::Lost);
    let (after, verdict) = does(&there, left.job.id, succeeded(left.job.attempts[0].id, "1")).await;
    assert_eq!((verdict, after.job.state()), (Verdict::Won, JobState::Succeeded));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_declared_dead_starts_nothing() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = store(&database).await;
    let node = enter(&store, 1).await;
    let queued = made(&store, ground.wish("ann", "queued")).await;
    let_lapse(&database, node).await;
    // A post is taken in and waits for another node.
    let taken = made(&store, started_by(&ground, node, "posted")).await;
    assert_eq!((taken.job.state(), taken.job.attempts.len()), (JobState::Queued, 0));
    assert_eq!(job(&store, taken.job.id).await, taken);
    let claim = Claim {
        provider: "main".into(),
        attempts: vec![ground.attempt_id()],
        node,
        contracts: Default::default(),
        at: NOW,
    };
    assert_eq!(store.claim(claim.clone()).await.unwrap().records, []);
    let what = What::Start(Start { node, ..ground.start("main", Trigger::Hand { force: false }) });
    assert!(store.apply(queued.job.id, Event { at: NOW, what }).await.is_err());
    // Late, but nobody has declared it dead: it is alive again.
    assert_eq!(store.renew(node, LEASE).await.unwrap(), Renewed::Held);
    assert_eq!(store.claim(claim).await.unwrap().records.len(), 1);
}

/// Decided in a former life of this process, written in the next: by then the others have taken it for dead,
/// and the new lease does not stand for the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_entered_anew_starts_nothing_of_its_former_life() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = store(&database).await;
    let former = enter(&store, 1).await;
    let queued = made(&store, ground.wish("ann", "queued")).await;
    let now = enter(&store, 2).await;
    let taken = made(&store, started_by(&ground, former, "posted")).await;
    assert_eq!((taken.job.state(), taken.job.attempts.len()), (JobState::Queued, 0));
    let claim = |node| Claim {
        provider: "main".into(),
        attempts: vec![ground.attempt_id()],
        node,
        contracts: Default::default(),
        at: NOW,
    };
    assert_eq!(store.claim(claim(former)).await.unwrap().records, []);
    let what = What::Start(Start { node: former, ..ground.start("main", Trigger::Hand { force: false }) });
    assert!(store.apply(queued.job.id, Event { at: NOW, what }).await.is_err());
    assert_eq!(store.claim(claim(now)).await.unwrap().records.len(), 1);
}

/// After the database was away every lease has ended, and every node is on its way back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_just_come_back_declares_nobody_dead() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (here, there) = (store(&database).await, store(&database).await);
    let (one, other) = (enter(&here, 1).await, enter(&there, 2).await);
    has_been_there(&database, one).await;
    made(&there, started_by(&ground, other, "left")).await;
    let_lapse(&database, one).await;
    let_lapse(&database, other).await;
    assert_eq!(here.reap(one, NOW, 10).await.unwrap(), [], "without a lease of its own");
    assert_eq!(here.renew(one, LEASE).await.unwrap(), Renewed::Held);
    assert_eq!(here.reap(one, NOW, 10).await.unwrap(), [], "with one that has just begun");
    has_been_there(&database, one).await;
    assert_eq!(here.reap(one, NOW, 10).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_is_shown_as_ended_and_what_it_left_is_reaped_at_once() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (here, there) = (store(&database).await, store(&database).await);
    let (one, other) = (enter(&here, 1).await, enter(&there, 2).await);
    let record = made(&there, started_by(&ground, other, "left")).await;
    there.leave(other).await.unwrap();
    assert_eq!(there.renew(other, LEASE).await.unwrap(), Renewed::Lost);
    let nodes = here.nodes().await.unwrap();
    let shown: Vec<_> = nodes.iter().map(|known| (known.node.id, known.ended_at.is_some())).collect();
    assert_eq!(shown, [(other, true), (one, false)]);
    assert_eq!(here.reap(one, NOW, 10).await.unwrap().len(), 1);
    assert_eq!(job(&here, record.job.id).await.job.attempts[0].state.name(), AttemptStateName::Unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_clock_says_what_is_due_and_not_the_nodes() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = Store::Postgres(Arc::new(PostgresStore::open(database.options()).await.unwrap()));
    let row = database.client().await.query_one("SELECT onejob.now_ms()", &[]).await.unwrap();
    let theirs: i64 = row.get(0);
    let ours = store.now();
    assert!((ours - theirs).abs() < 1_000, "{ours} and {theirs}");
    let later = Submit { plan: plan("main", ours + 3_600_000), ..ground.wish("ann", "later") };
    let past = Submit { plan: plan("main", ours - 1_000), ..ground.wish("ann", "past") };
    let (later, past) = (made(&store, later).await, made(&store, past).await);
    let claim = |at| Claim {
        provider: "main".into(),
        attempts: vec![ground.attempt_id(), ground.attempt_id()],
        node: NodeId(1),
        contracts: Default::default(),
        at,
    };
    // Whatever the caller's clock says.
    let claimed = store.claim(claim(i64::MAX)).await.unwrap();
    assert_eq!(claimed.records.iter().map(|record| record.job.id).collect::<Vec<_>>(), [past.job.id]);
    assert!(claimed.records[0].job.attempts[0].started_at >= ours - 1_000);
    assert_eq!(claimed.next_due, Some(ours + 3_600_000));
    assert_eq!(store.claim(claim(0)).await.unwrap().records, []);
    assert_eq!(job(&store, later.job.id).await, later);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_ready_to_write_before_the_first_job_comes() {
    let database = Cluster::shared().database().await;
    let store = store(&database).await;
    let client = database.client().await;
    let ready = "SELECT count(*) FROM pg_stat_activity WHERE query = 'ROLLBACK' AND state = 'idle' AND datname = current_database()";
    let all_ready = async {
        while client.query_one(ready, &[]).await.unwrap().get::<_, i64>(0) < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, all_ready).await.unwrap();
    let written = "SELECT (SELECT count(*) FROM onejob.jobs) + (SELECT count(*) FROM onejob.attempts)";
    assert_eq!(client.query_one(written, &[]).await.unwrap().get::<_, i64>(0), 0);
    store.close().await;
}

async fn heard(hearing: &mut onejob::store::Hearing) -> Heard {
    tokio::time::timeout(LIMIT, hearing.next()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_hear_what_others_do_and_of_every_gap() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let (here, there) = (store(&database).await, store(&database).await);
    let mut hearing = here.hear();
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onejob-listener' AND state = 'idle' AND datname = current_database()";
    let client = database.client().await;
    let listeners = async |least: i64| {
        while client.query_one(listening, &[]).await.unwrap().get::<_, i64>(0) < least {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, listeners(2)).await.unwrap();
    for round in ["first", "after the cut"] {
        // One may be told before the other has said LISTEN; then the next is heard.
        let heard_of_one = async {
            'next: for number in 0.. {
                let record = made(&there, ground.wish("ann", &format!("{round}, {number}"))).await;
                // Gaps come first; what was told before is not told again.
                while let Ok(heard) = tokio::time::timeout(Duration::from_secs(2), hearing.next()).await {
                    if let Heard::Hint { providers, jobs } = heard
                        && jobs == Changed::These(vec![record.job.id])
                    {
                        assert_eq!(providers, ["main".into()]);
                        break 'next;
                    }
                }
            }
        };
        tokio::time::timeout(LIMIT, heard_of_one).await.unwrap();
        if round == "first" {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE application_name = 'onejob-listener' AND state = 'idle' AND datname = current_database()";
            client.query(cut, &[]).await.unwrap();
            while heard(&mut hearing).await != Heard::Gap {}
            tokio::time::timeout(LIMIT, listeners(2)).await.unwrap();
        }
    }
    // Many at once are not named.
    let posts: Vec<_> = (0..400)
        .map(|number| {
            let (there, wish) = (there.clone(), ground.wish("ann", &format!("{number}")));
            tokio::spawn(async move { made(&there, wish).await })
        })
        .collect();
    for post in posts {
        post.await.unwrap();
    }
    let mut named = 0;
    loop {
        match heard(&mut hearing).await {
            Heard::Hint { jobs: Changed::Many, .. } => break,
            Heard::Hint { jobs: Changed::These(jobs), .. } => named += jobs.len(),
            Heard::Gap => {}
        }
        if named >= 400 {
            break;
        }
    }
}
