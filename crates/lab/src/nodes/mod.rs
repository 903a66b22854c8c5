//! A world of many nodes: real processes of the real binary on one database, a provider outside of them
//! that keeps a ledger, callers that keep what was acknowledged to them, and an audit at the end.
//!
//! A story starts the world, lets callers load it, breaks something, and audits: what was acknowledged is
//! there, each job has one result, and the provider was asked once.
// A story that cannot have its world must fail and say what is missing.
#![allow(clippy::unwrap_used, missing_docs)]

mod http;
mod provider;
mod process;
mod load;
mod audit;

use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::NoTls;

pub use audit::Audit;
pub use http::{Answer, Caller};
pub use load::{Acknowledged, Load};
pub use process::Node;
pub use provider::{Execution, Provider};

/// The one generous limit of every wait.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Everybody's owner.
pub const OWNER: &str = "ann";

/// Some nodes on one database, and their provider.
pub struct World {
    pub nodes: Vec<Node>,
    pub provider: Provider,
}

impl World {
    /// Starts a node for each URL of the store, all on the same configuration otherwise.
    ///
    /// # Panics
    ///
    /// If the binary is not built, or a node does not become ready.
    pub async fn start(stores: &[String]) -> World {
        let provider = Provider::start().await;
        let nodes: Vec<Node> = stores.iter().map(|store| Node::start(store, &provider.url)).collect();
        for node in &nodes {
            node.until_ready().await;
        }
        World { nodes, provider }
    }

    /// Callers of all nodes.
    pub fn load(&self, callers: usize) -> Load {
        Load::start(&self.ports(), callers)
    }

    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    /// Posts jobs to one node until so many are with the provider by way of that node, which holds them at
    /// `gate`. One that waited in line may have been taken by another node; it is held too and not counted.
    pub async fn held_calls(&self, url: &str, node: usize, count: usize, gate: &str) -> Acknowledged {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let sent_by = "SELECT nodes.name FROM onejob.attempts JOIN onejob.nodes ON nodes.id = attempts.node
            JOIN onejob.jobs ON jobs.id = attempts.job_id WHERE jobs.idempotency_key = $1";
        let here = format!(":{}", self.nodes[node].id());
        let mut caller = Caller::of(self.nodes[node].port);
        let mut held = Acknowledged::new();
        for number in 0.. {
            if held.len() == count {
                break;
            }
            let key = format!("{gate}-{number}");
            let posted = caller.post_job(&key, &json!({ "gate": gate })).await.unwrap();
            assert_eq!(posted.status, 201, "{posted:?}");
            self.provider.reached(&posted.id(), 1).await;
            if client.query_one(sent_by, &[&key]).await.unwrap().get::<_, &str>(0).ends_with(&here) {
                held.insert(key, posted.id());
            }
        }
        held
    }

    /// A job as a node shows it.
    pub async fn job(&self, node: usize, id: &str) -> Value {
        let answer = Caller::of(self.nodes[node].port).get(&format!("/v1/jobs/{id}")).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    }

    /// The job, when `node` says that it has ended or that nobody knows.
    pub async fn waited(&self, node: usize, id: &str) -> Value {
        let answer = Caller::of(self.nodes[node].port).get(&format!("/v1/jobs/{id}?wait=60s")).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    }
}

/// Waits until `holds`, looking now and then, and says what was waited for if it never does.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let look = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, look).await.is_ok(), "never: {what}");
}
