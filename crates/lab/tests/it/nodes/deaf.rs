//! Nodes that do not hear each other: waits become slower by the time between two looks, and nothing stays
//! behind.

use std::time::{Duration, Instant};

use onejob_lab::nodes::World;
use onejob_lab::postgres::{Cluster, Database};
use onejob_lab::proxy::Proxy;

const LISTENERS: &str =
    "FROM pg_stat_activity WHERE application_name = 'onejob-listener' AND datname = current_database()";

async fn listeners(database: &Database<'_>) -> i64 {
    let count = format!("SELECT count(*) {LISTENERS} AND state = 'idle'");
    database.client().await.query_one(&count, &[]).await.unwrap().get(0)
}

/// Waits at the second node for jobs of the first.
async fn waits(world: &World, url: &str, gate: &str) -> Duration {
    let held = world.held_calls(url, 0, 5, gate).await;
    let began = Instant::now();
    let open = async {
        // By now the waits have begun; the story would be as true if they had not.
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.provider.open(gate);
    };
    let wait = async {
        for id in held.values() {
            let job = world.waited(1, id).await;
            assert_eq!(job["state"], "succeeded", "{job:#}");
        }
    };
    tokio::join!(open, wait);
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hears_nothing_looks_for_itself_and_listens_again() {
    let database = Cluster::shared().database().await;
    let (url, proxy) = (database.url(), Proxy::before(Cluster::shared().port()).await);
    let through = format!("postgres://onejob@127.0.0.1:{}/{}", proxy.port, database.name);
    let world = World::start(&[url.clone(), through]).await;
    let load = world.load(8);
    load.go_on_for(50).await;
    let hearing = waits(&world, &url, "hearing").await;

    // The wire of one goes silent without an end; that of the other is cut again and again.
    proxy.swallow("onejob-listener");
    let cut = async {
        let client = database.client().await;
        let cut = format!("SELECT pg_terminate_backend(pid) {LISTENERS}");
        loop {
            client.query(&cut, &[]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let deaf = tokio::select! { () = cut => unreachable!(), took = waits(&world, &url, "deaf") => took };
    load.go_on_for(50).await;
    println!("waits took {hearing:?} with hints and {deaf:?} without");
    assert!(deaf < Duration::from_secs(30), "a second or two between two looks, not {deaf:?}");

    proxy.swallow_nothing();
    onejob_lab::nodes::until("both listen again", || async { listeners(&database).await >= 2 }).await;
    waits(&world, &url, "again").await;
    let acknowledged = load.end().await;
    let audit = world.audit(1, &url, &acknowledged).await;
    println!("{audit:?}");
    assert!(audit.jobs >= 110 && audit.unknown.is_empty(), "{audit:?}");
}
