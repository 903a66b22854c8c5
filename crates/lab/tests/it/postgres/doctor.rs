//! What `onejob doctor` sees of real databases.

use std::sync::Arc;
use std::time::Duration;

use onejob::Config;
use onejob::doctor::{Check, State, examine};
use onejob::store::{Node, PostgresStore, Store};
use onejob_core::NodeId;
use onejob_lab::postgres::{Cluster, Database, Disk};
use onejob_lab::store_contract::ground::{does, made, silent};
use onejob_lab::store_contract::{Ground, Kind};

async fn looked(url: &str) -> Vec<Check> {
    let text = format!("[server]\nstore = {url:?}\n[providers.main]\nkind = \"simulated\"\n");
    examine(&Config::from_text(&text).unwrap()).await
}

/// What needs a hand, but for what the shared cluster is told to neglect.
async fn findings(database: &Database<'_>) -> Vec<Check> {
    let checks = looked(&database.url()).await;
    checks.into_iter().filter(|check| check.state == State::Finding && check.name != "database.durability").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_cluster_with_a_node_has_nothing_to_find() {
    let cluster = Cluster::start(Disk::Durable);
    let database = cluster.database().await;
    let store = PostgresStore::open(database.options()).await.unwrap();
    store.enter(Node { id: NodeId(1), name: "a:1".into() }, Duration::from_secs(60)).await.unwrap();
    let checks = looked(&database.url()).await;
    assert!(checks.iter().all(|check| check.state == State::Good), "{checks:#?}");
    let seen = format!("{checks:?}");
    assert!(seen.contains("a:1: alive") && seen.contains("as onejob in"), "{seen}");
    cluster.stop("immediate");
    let checks = looked(&database.url()).await;
    assert_eq!((checks[0].name, checks[0].state), ("database.connection", State::Finding), "{checks:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_an_old_unknown_and_an_orphaned_job_are_found() {
    let ground = Ground::new(Kind::Memory);
    let database = Cluster::shared().database().await;
    let store = Store::Postgres(Arc::new(database.store().await));
    store.enter(Node { id: NodeId(1), name: "dead:1".into() }, Duration::from_secs(60)).await.unwrap();
    assert_eq!(findings(&database).await, []);
    database.shell("UPDATE onejob.nodes SET lease_until = onejob.now_ms() - 120000").await;
    // Of a process that entered nowhere: one that did starts nothing under another name. The times of
    // these are those of the ground: long ago.
    let store = Store::Postgres(Arc::new(database.store().await));
    let job = ground.starting(&store, "silent").await;
    does(&store, job.job.id, silent(job.job.attempts[0].id)).await;
    let mut wish = ground.wish("ann", "orphan");
    wish.plan.provider = "gone".into();
    made(&store, wish).await;
    let found = findings(&database).await;
    let names: Vec<_> = found.iter().map(|check| check.name).collect();
    assert_eq!(names, ["nodes", "jobs.unknown", "jobs.queued", "jobs.provider"], "{found:#?}");
    assert!(found[0].seen.starts_with("dead:1: its lease ended 2 min ago"), "{}", found[0].seen);
    assert!(found.iter().all(|check| check.advice.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_and_none_at_all_are_found() {
    let database = Cluster::shared().database().await;
    database.shell("INSERT INTO onejob.schema_version (version, name) VALUES (99, '0099_later.sql')").await;
    let found = findings(&database).await;
    assert_eq!((found.len(), found[0].name), (1, "database.schema"), "{found:#?}");
    assert!(found[0].seen.starts_with("version 99,"), "{}", found[0].seen);
    let empty = Cluster::shared().empty_database().await;
    let found = findings(&empty).await;
    assert_eq!((found.len(), found[0].name), (1, "database.schema"), "{found:#?}");
    assert_eq!(found[0].advice.as_deref(), Some("run `onejob migrate`"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_is_seen_with_its_session() {
    let database = Cluster::shared().database().await;
    let client = database.client().await;
    client.batch_execute("SET application_name = 'forgotten'; BEGIN; SELECT 1").await.unwrap();
    let seen = onejob::store::postgres::examine(&database.options()).await.unwrap();
    let transactions = seen.transactions.unwrap();
    assert_eq!(transactions.len(), 1, "{transactions:?}");
    assert_eq!((&*transactions[0].application, &*transactions[0].state), ("forgotten", "idle in transaction"));
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    assert_eq!(transactions[0].name, format!("session {pid}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_read_nothing_is_told_so_and_nothing_is_shown_of_a_password() {
    let database = Cluster::shared().database().await;
    database.shell("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN").await;
    let url = database.url().replace("onejob@", "stranger:hush@");
    let checks = looked(&url).await;
    let schema = checks.iter().find(|check| check.name == "database.schema").unwrap();
    assert_eq!(schema.state, State::Finding, "{checks:#?}");
    assert!(!format!("{checks:?}").contains("hush"));
}
