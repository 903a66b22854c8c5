//! `kill -9` of one of three nodes under load.

use onejob_lab::nodes::World;
use onejob_lab::postgres::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_r10_a_killed_node_loses_nothing_and_the_others_go_on() {
    let database = Cluster::shared().database().await;
    let url = database.url();
    let mut world = World::start(&[url.clone(), url.clone(), url.clone()]).await;
    let mut acknowledged = world.held_calls(&url, 0, 3, "killed").await;
    let load = world.load(12);
    load.go_on_for(100).await;

    world.nodes[0].kill();
    load.go_on_for(100).await;
    // Nobody can know whether the provider did it: not failed, not started again, and shown.
    for id in acknowledged.values() {
        let job = world.waited(1, id).await;
        assert_eq!((&job["state"], &job["attempts"][0]["cause"]), (&"unknown".into(), &"node_died".into()), "{job:#}");
        assert_eq!((job["attempts"].as_array().map(Vec::len), world.provider.of_job(id).len()), (Some(1), 1));
    }
    acknowledged.extend(load.end().await);
    world.provider.open("killed");
    let audit = world.audit(1, &url, &acknowledged).await;
    println!("{audit:?}");
    assert!(audit.jobs >= 200 && audit.unknown["node_died"] >= 3, "{audit:?}");
}
