//! Many callers race for a few keys on two nodes; `cargo lab races` does it for a minute.

use onejob_lab::postgres::Cluster;
use onejob_lab::races::{KEYS, Length, race};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_two_nodes_make_one_job_for_each_hot_key() {
    let database = Cluster::shared().database().await;
    let raced = race(&database.url(), Length::Posts(4_000), fastrand::u64(..)).await;
    println!("{raced:?}");
    assert!(raced.made == KEYS && raced.conflicts > 0 && raced.posts >= 4_000, "{raced:?}");
}
