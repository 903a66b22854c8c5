//! A provider that does as it is told and writes down what reached it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::watch;

/// One request that reached the provider.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) provider: String,
    pub(crate) job: String,
    pub(crate) attempt: String,
    pub(crate) key: Option<String>,
    pub(crate) at: std::time::Instant,
}

#[derive(Clone)]
pub(crate) struct ProviderServer {
    pub(crate) url: String,
    ledger: Arc<Mutex<Vec<Seen>>>,
    gates: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
    seen: Arc<watch::Sender<usize>>,
}

impl ProviderServer {
    pub(crate) async fn start() -> ProviderServer {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server =
            ProviderServer { url, ledger: Arc::default(), gates: Arc::default(), seen: Arc::new(watch::channel(0).0) };
        let router = Router::new().route("/{provider}/do", post(act)).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    /// How often a job reached any provider here: the figure that onejob exists for.
    pub(crate) fn executions(&self, job: &str) -> usize {
        self.of(job).len()
    }

    pub(crate) fn of(&self, job: &str) -> Vec<Seen> {
        self.ledger.lock().unwrap().iter().filter(|seen| seen.job == job).cloned().collect()
    }

    /// How often a job reached this one.
    pub(crate) fn executions_at(&self, job: &str, provider: &str) -> usize {
        self.of(job).iter().filter(|seen| seen.provider == provider).count()
    }

    /// Returns when `count` requests of `job` have arrived.
    pub(crate) async fn reached(&self, job: &str, count: usize) {
        let mut seen = self.seen.subscribe();
        let enough = seen.wait_for(|_| self.executions(job) >= count);
        tokio::time::timeout(super::world::PATIENCE, enough).await.expect("the provider was not reached").unwrap();
    }

    /// Lets every request that waits at the gate `name` go on, and all that come later.
    pub(crate) fn open(&self, name: &str) {
        self.gate(name).send_replace(true);
    }

    fn gate(&self, name: &str) -> watch::Sender<bool> {
        self.gates.lock().unwrap().entry(name.to_owned()).or_insert_with(|| watch::channel(false).0).clone()
    }
}

/// Members of `do`: `gate` (wait until the test opens it), `delay_ms`, `status`, `headers`, `output`, `model`, `raw`,
/// `first` (what to do instead at the first request of the job). Given per provider or for all.
async fn act(
    State(server): State<ProviderServer>,
    Path(provider): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
    let job = header("onejob-job-id").unwrap_or_default();
    let nth = server.executions(&job);
    server.ledger.lock().unwrap().push(Seen {
        provider: provider.clone(),
        job,
        attempt: header("onejob-attempt-id").unwrap_or_default(),
        key: header("idempotency-key"),
        at: std::time::Instant::now(),
    });
    server.seen.send_modify(|n| *n += 1);
    let body: Value = serde_json::from_slice(&body).unwrap();
    let mut spec = body["do"].clone();
    if spec.get(&provider).is_some() {
        spec = spec[&provider].clone();
    }
    if nth == 0 && spec.get("first").is_some() {
        spec = spec["first"].clone();
    }
    if let Some(gate) = spec["gate"].as_str() {
        let mut open = server.gate(gate).subscribe();
        open.wait_for(|open| *open).await.unwrap();
    }
    if let Some(delay) = spec["delay_ms"].as_u64() {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let status = StatusCode::from_u16(spec["status"].as_u64().unwrap_or(200) as u16).unwrap();
    let answer = match spec.get("raw") {
        Some(raw) => raw.as_str().unwrap().to_owned(),
        None => {
            let output = spec.get("output").cloned().unwrap_or(json!({ "by": provider }));
            let model = spec.get("model").cloned().unwrap_or(json!("m-1"));
            json!({ "output": output, "model": model }).to_string()
        }
    };
    let mut response = (status, answer).into_response();
    for (name, value) in spec["headers"].as_object().into_iter().flatten() {
        let name: axum::http::HeaderName = name.parse().unwrap();
        response.headers_mut().insert(name, value.as_str().unwrap().parse().unwrap());
    }
    response
}
