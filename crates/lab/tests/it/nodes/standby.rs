//! The primary crashes under load and its standby takes over.

use onejob_lab::nodes::World;
use onejob_lab::postgres::{Cluster, Disk};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r10_a_promoted_standby_has_everything_that_was_acknowledged() {
    let primary = Cluster::start(Disk::Durable);
    let database = primary.database().await;
    let standby = primary.standby().await;
    let url = format!("postgres://onejob@127.0.0.1:{},127.0.0.1:{}/{}", primary.port(), standby.port(), database.name);
    let world = World::start(&[url.clone(), url.clone()]).await;
    let mut acknowledged = world.held_calls(&url, 0, 3, "held").await;
    let load = world.load(12);
    load.go_on_for(100).await;

    tokio::task::block_in_place(|| primary.stop("immediate"));
    load.until_refused(12).await;
    world.provider.open("held");
    tokio::task::block_in_place(|| standby.promote());

    load.go_on_for(100).await;
    for id in acknowledged.values() {
        let job = world.waited(1, id).await;
        assert_eq!(job["state"], "succeeded", "{job:#}");
    }
    acknowledged.extend(load.end().await);
    let audit = world.audit(1, &standby.url(&database.name), &acknowledged).await;
    println!("{audit:?}");
    assert!(audit.jobs >= 200, "{audit:?}");
}
