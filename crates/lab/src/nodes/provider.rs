//! The provider: outside of every node, it outlives them, and its ledger is the judge. What it does is in
//! the input: `delay_ms` (before it answers), `gate` (it answers when the story opens that).
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Router, body::Bytes};
use serde_json::{Value, json};
use tokio::sync::watch;

/// One request that reached the provider: from then on the work is done, whoever hears of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Execution {
    pub job: String,
    pub attempt: String,
    /// Its place in the ledger, which is also its answer.
    pub number: usize,
}

impl Execution {
    /// What the provider answers.
    pub fn output(&self) -> Value {
        json!({ "execution": self.number })
    }
}

#[derive(Clone)]
pub struct Provider {
    pub url: String,
    ledger: Arc<Mutex<Vec<Execution>>>,
    gates: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
    received: Arc<watch::Sender<usize>>,
}

impl Provider {
    pub async fn start() -> Provider {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let provider =
            Provider { url, ledger: Arc::default(), gates: Arc::default(), received: Arc::new(watch::channel(0).0) };
        let router = Router::new().route("/do", post(work)).with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    /// All that it was asked to do, in order.
    pub fn ledger(&self) -> Vec<Execution> {
        self.ledger.lock().unwrap().clone()
    }

    pub fn of_job(&self, job: &str) -> Vec<Execution> {
        self.ledger.lock().unwrap().iter().filter(|execution| execution.job == job).cloned().collect()
    }

    /// Returns when `count` requests of `job` have arrived.
    pub async fn reached(&self, job: &str, count: usize) {
        let mut received = self.received.subscribe();
        let enough = received.wait_for(|_| self.of_job(job).len() >= count);
        let reached = tokio::time::timeout(super::PATIENCE, enough).await;
        assert!(reached.is_ok_and(|open| open.is_ok()), "{job} did not reach the provider {count} times");
    }

    /// Lets every request that waits at the gate go on, and all that come later.
    pub fn open(&self, gate: &str) {
        self.gate(gate).send_replace(true);
    }

    fn gate(&self, name: &str) -> watch::Sender<bool> {
        self.gates.lock().unwrap().entry(name.to_owned()).or_insert_with(|| watch::channel(false).0).clone()
    }
}

async fn work(State(provider): State<Provider>, headers: HeaderMap, body: Bytes) -> String {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let execution = {
        let mut ledger = provider.ledger.lock().unwrap();
        let (job, attempt) = (header("onejob-job-id"), header("onejob-attempt-id"));
        let execution = Execution { job, attempt, number: ledger.len() };
        ledger.push(execution.clone());
        execution
    };
    provider.received.send_modify(|received| *received += 1);
    let body: Value = serde_json::from_slice(&body).unwrap();
    let what = &body["do"];
    if let Some(gate) = what["gate"].as_str() {
        let mut open = provider.gate(gate).subscribe();
        drop(open.wait_for(|open| *open).await);
    }
    if let Some(delay) = what["delay_ms"].as_u64() {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    json!({ "output": execution.output() }).to_string()
}
