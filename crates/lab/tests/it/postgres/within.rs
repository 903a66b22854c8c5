//! Jobs inside a caller's own transaction, and what that does to those outside of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onejob::store::postgres::DueBy;
use onejob::store::{PostgresStore, Prune, Store};
use onejob::tokio_postgres::Client;
use onejob::{
    Config, JobRequest, JobState, Onejob, Record, StoreError, SubmitInError, Submitted, Verdict, WithinError,
};
use onejob_core::{Event, JobId, What};
use onejob_lab::postgres::{Cluster, Database};
use onejob_lab::store_contract::ground::{NOW, does, made, running, succeeded};
use onejob_lab::store_contract::{Ground, Kind};
use serde_json::json;
use tokio::sync::oneshot;

#[path = "../../../examples/order_and_job.rs"]
mod order_and_job;

const LIMIT: Duration = Duration::from_secs(60);

async fn open(store: &str) -> Onejob {
    let text = format!(
        "[server]\nstore = {store:?}\n[providers.main]\nkind = \"simulated\"\n[tasks.poster]\nproviders = [\"main\"]\n"
    );
    Onejob::open(Config::from_text(&text).unwrap()).await.unwrap()
}

fn wish(key: &str, text: &str) -> JobRequest {
    JobRequest::new("ann", key, "poster", json!({"text": text}))
}

fn record(submitted: &Submitted) -> Arc<Record> {
    match submitted {
        Submitted::New(record) | Submitted::Same(record) | Submitted::OtherIntent(record) => record.clone(),
        Submitted::Expired(_) => panic!("expired"),
    }
}

async fn statement(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Waits until somebody waits for a lock in this database.
async fn somebody_waits(database: &Database<'_>) {
    let client = database.client().await;
    let sql =
        "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let end = Instant::now() + LIMIT;
    while statement(&client, sql).await == "0" {
        assert!(Instant::now() < end, "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_and_its_job_are_one_commit() {
    let database = Cluster::shared().database().await;
    let story = order_and_job::play(&database.url()).await.unwrap();
    let expected = [
        "buy: a new job",
        "buy again: the same job",
        "buy another: refused: the key names another intent",
        "the job: succeeded, {\"poster\":\"a cat\"}, 1 duplicate",
        "committed: 1 order, 1 job",
        "rolled back: 0 order, 0 job",
        "died before the commit: 0 order, 0 job",
    ];
    assert_eq!(story, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_starts_before_the_commit_and_any_node_starts_it_after_without_a_word() {
    let database = Cluster::shared().database().await;
    // This one takes it in and does not run; the other runs and hears nothing.
    let here = open(&database.url()).await;
    let there = open(&format!("{}?notify=false", database.url())).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let node = tokio::spawn({
        let there = there.clone();
        async move { there.run(async { drop(stopped.await) }).await }
    });
    let mut client = database.client().await;
    let mut transaction = client.transaction().await.unwrap();
    let job = here.submit_in(&mut transaction, wish("k", "x")).await.unwrap();
    let made = record(job.submitted());
    assert_eq!((made.job.state(), made.job.attempts.len()), (JobState::Queued, 0));
    assert_eq!(there.job(made.job.id).await.unwrap(), None);
    transaction.commit().await.unwrap();
    drop(job);
    let done = there.wait(made.job.id, LIMIT).await.unwrap().unwrap();
    assert_eq!((done.job.state(), done.job.attempts.len()), (JobState::Succeeded, 1));
    drop(stop);
    node.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_of_two_transactions_with_one_key_the_second_waits_for_the_first() {
    let database = Cluster::shared().database().await;
    let onejob = open(&database.url()).await;
    for commits in [true, false] {
        let key = format!("k-{commits}");
        let (mut one, mut other) = (database.client().await, database.client().await);
        let mut first = one.transaction().await.unwrap();
        let made = onejob.submit_in(&mut first, wish(&key, "x")).await.unwrap();
        assert!(matches!(made.submitted(), Submitted::New(_)));
        // Inside the transaction the key is taken as well.
        let again = onejob.submit_in(&mut first, wish(&key, "x")).await.unwrap();
        assert!(matches!(again.submitted(), Submitted::Same(it) if it.job.id == record(made.submitted()).job.id));
        let second = tokio::spawn({
            let (onejob, key) = (onejob.clone(), key.clone());
            async move {
                let mut second = other.transaction().await.unwrap();
                let submitted = onejob.submit_in(&mut second, wish(&key, "x")).await.unwrap();
                second.commit().await.unwrap();
                submitted.committed().await
            }
        });
        somebody_waits(&database).await;
        if commits {
            first.commit().await.unwrap()
        } else {
            first.rollback().await.unwrap()
        }
        let (first, second) = (record(made.submitted()), second.await.unwrap());
        match (commits, &second) {
            (true, Submitted::Same(same)) => assert_eq!((same.job.id, same.duplicates), (first.job.id, 1)),
            (false, Submitted::New(new)) => assert_ne!(new.job.id, first.job.id),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r2_another_intent_is_refused_and_the_transaction_goes_on() {
    let database = Cluster::shared().database().await;
    let onejob = open(&database.url()).await;
    let job = record(&onejob.submit(wish("k", "x")).await.unwrap());
    let mut client = database.client().await;
    client.batch_execute("CREATE TABLE orders (id text)").await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    let submitted = onejob.submit_in(&mut transaction, wish("k", "y")).await.unwrap();
    assert!(matches!(submitted.submitted(), Submitted::OtherIntent(it) if it.job.id == job.job.id));
    let wrong = onejob.submit_in(&mut transaction, wish("a b", "x")).await;
    assert!(matches!(wrong, Err(SubmitInError::Invalid(_))));
    transaction.batch_execute("INSERT INTO orders VALUES ('order-1')").await.unwrap();
    transaction.commit().await.unwrap();
    let kinds: Vec<String> =
        onejob.notices(job.job.id).await.unwrap().iter().map(|notice| notice.kind.to_string()).collect();
    assert_eq!(kinds, ["conflict"]);
    assert_eq!(statement(&client, "SELECT count(*)::text FROM orders").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_that_was_cancelled_before_it_came_finds_a_cancelled_job() {
    let database = Cluster::shared().database().await;
    let onejob = open(&database.url()).await;
    onejob.cancel_by_key("ann", "k").await.unwrap();
    let mut client = database.client().await;
    let mut transaction = client.transaction().await.unwrap();
    let submitted = onejob.submit_in(&mut transaction, wish("k", "x")).await.unwrap();
    transaction.commit().await.unwrap();
    let Submitted::Same(same) = submitted.committed().await else { panic!("it was there") };
    assert_eq!((same.job.state(), same.intent.is_some()), (JobState::Cancelled, true));
    assert!(matches!(onejob.submit(wish("k", "y")).await.unwrap(), Submitted::OtherIntent(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r12_a_key_past_retention_never_runs_again_whatever_the_transaction_can_see() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let mut options = database.options();
    options.clock = DueBy::Caller;
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    let verbs = Store::Postgres(store.clone());
    let (job, _) = does(&verbs, made(&verbs, ground.wish("ann", "k")).await.job.id, What::Cancel).await;
    let mut client = database.client().await;
    // What this one sees of the world is older than the pruning.
    let builder = client.build_transaction().isolation_level(onejob::tokio_postgres::IsolationLevel::RepeatableRead);
    let mut old = builder.start().await.unwrap();
    old.query_one("SELECT count(*) FROM onejob.jobs", &[]).await.unwrap();
    let pruned = store.prune(Prune { after: JobId(0), ended_before: NOW + 1, limit: 10 }).await.unwrap();
    assert_eq!(pruned.jobs, 1);
    let seen = store.submit_in(&mut old, &ground.wish("ann", "k")).await;
    assert!(matches!(seen, Err(WithinError::Again(_))), "{seen:?}");
    old.commit().await.unwrap();
    let mut new = client.transaction().await.unwrap();
    let Submitted::Expired(tombstone) = store.submit_in(&mut new, &ground.wish("ann", "k")).await.unwrap() else {
        panic!("it never runs again")
    };
    assert_eq!((tombstone.job, tombstone.state), (job.job.id, JobState::Cancelled));
    new.commit().await.unwrap();
    assert_eq!(statement(&client, "SELECT count(*)::text FROM onejob.jobs").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_cannot_see_the_job_is_told_to_begin_again() {
    let database = Cluster::shared().database().await;
    let onejob = open(&database.url()).await;
    let mut client = database.client().await;
    let builder = client.build_transaction().isolation_level(onejob::tokio_postgres::IsolationLevel::RepeatableRead);
    let mut transaction = builder.start().await.unwrap();
    transaction.query_one("SELECT count(*) FROM onejob.jobs", &[]).await.unwrap();
    onejob.submit(wish("k", "x")).await.unwrap();
    let seen = onejob.submit_in(&mut transaction, wish("k", "x")).await.err().unwrap();
    assert!(matches!(seen, SubmitInError::Within(WithinError::Again(_))), "{seen:?}");
    transaction.rollback().await.unwrap();
    let mut again = client.transaction().await.unwrap();
    let submitted = onejob.submit_in(&mut again, wish("k", "x")).await.unwrap();
    assert!(matches!(submitted.submitted(), Submitted::Same(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_elsewhere_or_a_store_without_any_is_refused() {
    let (database, other, empty) = (
        Cluster::shared().database().await,
        Cluster::shared().empty_database().await,
        Cluster::shared().empty_database().await,
    );
    onejob::store::postgres::migrate(&other.options()).await.unwrap();
    let onejob = open(&database.url()).await;
    for elsewhere in [&other, &empty] {
        let mut client = elsewhere.client().await;
        let mut transaction = client.transaction().await.unwrap();
        let error = onejob.submit_in(&mut transaction, wish("k", "x")).await.err().unwrap();
        assert_eq!(error, SubmitInError::Within(WithinError::OtherDatabase));
        transaction.batch_execute("CREATE TABLE orders (id text)").await.unwrap();
        transaction.commit().await.unwrap();
    }
    let left = statement(&other.client().await, "SELECT count(*)::text FROM onejob.jobs").await;
    assert_eq!(left, "0");
    let mut client = database.client().await;
    let mut transaction = client.transaction().await.unwrap();
    let error = open("memory:").await.submit_in(&mut transaction, wish("k", "x")).await.err().unwrap();
    assert_eq!(error, SubmitInError::NotOnPostgres);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r10_the_session_of_the_caller_may_be_any_and_the_commit_is_durable() {
    let database = Cluster::shared().database().await;
    let onejob = open(&database.url()).await;
    let mut client = database.client().await;
    client.batch_execute("CREATE SCHEMA shop; CREATE TABLE shop.jobs (id int); SET search_path = shop").await.unwrap();
    for (before, within) in [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")] {
        client.batch_execute(&format!("SET synchronous_commit = {before}")).await.unwrap();
        let mut transaction = client.transaction().await.unwrap();
        let job = onejob.submit_in(&mut transaction, wish(before, "x")).await.unwrap();
        assert!(matches!(job.submitted(), Submitted::New(_)));
        let told: String = transaction.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
        assert_eq!(told, within);
        transaction.commit().await.unwrap();
        assert_eq!(statement(&client, "SHOW synchronous_commit").await, before, "for that transaction only");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_waiting_has_no_job_in_its_transaction() {
    let database = Cluster::shared().database().await;
    let onejob = open(&database.url()).await;
    let (mut one, mut other) = (database.client().await, database.client().await);
    let mut first = one.transaction().await.unwrap();
    let _made = onejob.submit_in(&mut first, wish("k", "x")).await.unwrap();
    let mut second = other.transaction().await.unwrap();
    {
        let mut waiting = std::pin::pin!(onejob.submit_in(&mut second, wish("k", "x")));
        tokio::select! {
            _ = &mut waiting => panic!("the key is held"),
            () = somebody_waits(&database) => {}
        }
    }
    first.rollback().await.unwrap();
    second.commit().await.unwrap();
    assert_eq!(onejob.job_of_key("ann", "k").await.unwrap(), None);
}

/// The neighbours of a key that an open transaction holds, posted together with it again and again; how long
/// the slowest took.
async fn slowest_neighbour(store: &Store, ground: &Arc<Ground>, name: &'static str) -> Duration {
    let mut slowest = Duration::ZERO;
    for round in 0..6 {
        for _ in 0..4 {
            let (store, wish) = (store.clone(), ground.wish("ann", "held"));
            tokio::spawn(async move { store.submit(wish).await });
        }
        let posts: Vec<_> = (0..20)
            .map(|number| {
                let (store, wish) = (store.clone(), ground.wish("ann", &format!("{name}-{round}-{number}")));
                tokio::spawn(async move {
                    let began = Instant::now();
                    made(&store, wish).await;
                    began.elapsed()
                })
            })
            .collect();
        for post in posts {
            slowest = slowest.max(post.await.unwrap());
        }
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_an_open_transaction_holds_up_nobody_but_its_own_posts() {
    let ground = Arc::new(Ground::new(Kind::Memory));
    let database = Cluster::shared().database().await;
    let postgres = Arc::new(database.store().await);
    let store = Store::Postgres(postgres.clone());
    let mut client = database.client().await;
    let mut transaction = client.transaction().await.unwrap();
    for key in ["held", "given"] {
        let submitted = postgres.submit_in(&mut transaction, &ground.wish("ann", key)).await.unwrap();
        assert!(matches!(submitted, Submitted::New(_)));
    }
    let began = Instant::now();
    let held = tokio::spawn({
        let (store, wish) = (store.clone(), ground.wish("ann", "held"));
        async move { store.submit(wish).await }
    });
    somebody_waits(&database).await;
    let slowest = slowest_neighbour(&store, &ground, "beside").await;
    assert!(slowest < Duration::from_secs(3), "a neighbour waited {slowest:?}");
    // It waits for some seconds, and is told to come again.
    assert!(matches!(held.await.unwrap(), Err(StoreError::Unavailable(_))));
    assert!(began.elapsed() >= Duration::from_secs(5), "long enough for a stopped node to lose its rows");
    let given = tokio::spawn({
        let (store, wish) = (store.clone(), ground.wish("ann", "given"));
        async move { store.submit(wish).await }
    });
    somebody_waits(&database).await;
    transaction.commit().await.unwrap();
    assert!(matches!(given.await.unwrap().unwrap(), Submitted::Same(_)));
    assert!(matches!(store.submit(ground.wish("ann", "held")).await.unwrap(), Submitted::Same(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_somebody_holds_delays_no_other_answer() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = Store::Postgres(Arc::new(database.store().await));
    let mut jobs = HashMap::new();
    for number in 0..20 {
        let job = ground.starting(&store, &number.to_string()).await;
        jobs.insert(number, (job.job.id, job.job.attempts[0].id));
    }
    let mut client = database.client().await;
    let transaction = client.transaction().await.unwrap();
    transaction.query("SELECT id FROM onejob.jobs WHERE idempotency_key = '0' FOR UPDATE", &[]).await.unwrap();
    let tell = |number: i32, what: What| {
        let (store, id) = (store.clone(), jobs[&number].0);
        tokio::spawn(async move {
            let began = Instant::now();
            (store.apply(id, Event { at: NOW, what }).await, began.elapsed())
        })
    };
    let held = tell(0, running(jobs[&0].1));
    somebody_waits(&database).await;
    let others: Vec<_> = (1..20).map(|number| tell(number, succeeded(jobs[&number].1, "1"))).collect();
    for other in others {
        let (applied, took) = other.await.unwrap();
        assert!(matches!(applied, Ok(onejob::Applied::Done { verdict: Verdict::Won, .. })), "{applied:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    transaction.rollback().await.unwrap();
    assert!(matches!(held.await.unwrap().0, Ok(onejob::Applied::Done { verdict: Verdict::Recorded, .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_with_the_rights_on_the_page_can_do_all_of_it() {
    let database = Cluster::shared().database().await;
    let onejob = open(&database.url()).await;
    onejob.cancel_by_key("ann", "cancelled").await.unwrap();
    let mut client = database.client().await;
    client
        .batch_execute(
            "CREATE ROLE clerk;
            GRANT USAGE ON SCHEMA onejob TO clerk;
            GRANT SELECT ON onejob.jobs, onejob.attempts, onejob.tombstones, onejob.notices, onejob.schema_version TO clerk;
            GRANT INSERT ON onejob.jobs, onejob.queue, onejob.notices TO clerk;
            GRANT UPDATE ON onejob.jobs TO clerk;
            SET ROLE clerk",
        )
        .await
        .unwrap();
    let mut transaction = client.transaction().await.unwrap();
    let mut words = Vec::new();
    for (key, text) in [("k", "x"), ("k", "x"), ("k", "y"), ("cancelled", "x")] {
        words.push(match onejob.submit_in(&mut transaction, wish(key, text)).await.unwrap().submitted() {
            Submitted::New(_) => "new",
            Submitted::Same(_) => "same",
            Submitted::OtherIntent(_) => "other",
            Submitted::Expired(_) => "expired",
        });
    }
    assert_eq!(words, ["new", "same", "other", "same"]);
    transaction.commit().await.unwrap();
}
