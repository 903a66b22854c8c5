//! The stores against the reference, with random commands.
//!
//! `ONEJOB_SEED=123 cargo test -p onejob-lab --test it model` replays one run; `ONEJOB_RUNS=500` makes
//! more of them.

use onejob_lab::store_contract::{Ground, Kind, model};

const RUNS: u64 = 8;
const STEPS: usize = 250;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_commands_find_no_difference_between_the_embedded_store_and_the_reference() {
    compare_with(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_commands_find_no_difference_between_the_store_of_many_nodes_and_the_reference() {
    compare_with(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_commands_find_no_difference_between_a_pooled_store_and_the_reference() {
    compare_with(Kind::Pooled).await;
}

async fn compare_with(kind: Kind) {
    let runs = std::env::var("ONEJOB_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let seeds: Vec<u64> = match std::env::var("ONEJOB_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..runs).map(|_| fastrand::u64(..)).collect(),
    };
    for seed in seeds {
        let (memory, other) = (Ground::new(Kind::Memory), Ground::new(kind));
        model::run(seed, STEPS, &memory.store(), &other.store()).await;
        other.end().await;
    }
}
