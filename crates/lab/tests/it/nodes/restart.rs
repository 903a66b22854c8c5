//! The database crashes and starts again under load.

use onejob_lab::nodes::{Caller, World, until};
use onejob_lab::postgres::{Cluster, Disk};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r10_a_crash_of_the_database_loses_nothing_and_the_nodes_come_back_alone() {
    let cluster = Cluster::start(Disk::Durable);
    let database = cluster.database().await;
    let url = database.url();
    let world = World::start(&[url.clone(), url.clone()]).await;
    let mut acknowledged = world.held_calls(&url, 0, 3, "held").await;
    let load = world.load(12);
    load.go_on_for(100).await;

    tokio::task::block_in_place(|| cluster.stop("immediate"));
    load.until_refused(24).await;
    let mut caller = Caller::of(world.nodes[0].port);
    assert_eq!(caller.get("/healthz").await.unwrap().status, 200, "the process is well");
    assert_eq!(caller.get("/readyz").await.unwrap().status, 503, "the store is not");
    // What the provider says meanwhile is kept until it can be written.
    world.provider.open("held");
    tokio::task::block_in_place(|| cluster.start_again());

    load.go_on_for(100).await;
    for id in acknowledged.values() {
        let job = world.waited(1, id).await;
        assert_eq!(job["state"], "succeeded", "{job:#}");
    }
    acknowledged.extend(load.end().await);
    for node in &world.nodes {
        let ready = || async { Caller::of(node.port).get("/readyz").await.unwrap().status == 200 };
        until("the node is ready again", ready).await;
    }
    let audit = world.audit(0, &url, &acknowledged).await;
    println!("{audit:?}");
    assert!(audit.jobs >= 200, "{audit:?}");
}
