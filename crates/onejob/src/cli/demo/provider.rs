//! The demo's provider: real HTTP, slow on purpose, with a ledger of its own.
//!
//! What the demo counts, it counts here: an execution is a request that this provider took up,
//! whatever became of the answer. It goes on working when its caller is gone, as real ones do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A provider under several names, in this process.
pub(super) struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Serves for as long as it is kept.
    _runtime: Runtime,
}

/// One line of the ledger.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    /// Under which name it was asked.
    pub(super) provider: String,
    /// What the caller said it is for.
    pub(super) attempt: String,
    /// The output, once the work is done, whether or not anybody still listens.
    pub(super) output: Option<Value>,
}

struct Shared {
    ledger: Mutex<Vec<Execution>>,
    /// Per name: how many of the ledger's first lines may end.
    released: watch::Sender<BTreeMap<String, usize>>,
}

impl Provider {
    /// Listens on a free loopback port.
    pub(super) fn start() -> std::io::Result<Provider> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(Shared { ledger: Mutex::default(), released: watch::Sender::new(BTreeMap::new()) });
        let router = Router::new().route("/{provider}", post(take_up)).with_state(shared.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        runtime.spawn(async move {
            // It ends with its runtime; an error of one connection is that caller's alone.
            let _ended = axum::serve(listener, router).await;
        });
        Ok(Provider { address, shared, _runtime: runtime })
    }

    /// The address of the provider of that name.
    pub(super) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Lets everything end that this provider has taken up by now.
    pub(super) fn release(&self, name: &str) {
        let lines = self.shared.lines().len();
        self.shared.released.send_modify(|released| {
            released.insert(name.to_owned(), lines);
        });
    }

    /// How long the ledger is: where the next play's part begins.
    pub(super) fn mark(&self) -> usize {
        self.shared.lines().len()
    }

    /// The ledger from a mark on.
    pub(super) fn since(&self, mark: usize) -> Vec<Execution> {
        self.shared.lines().iter().skip(mark).cloned().collect()
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Vec<Execution>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on a line of the ledger until it may end.
    async fn work(&self, line: usize, name: &str) -> Value {
        let mut released = self.released.subscribe();
        // The sender lives as long as `self`.
        let _released = released.wait_for(|released| released.get(name).is_some_and(|lines| *lines > line)).await;
        let output = json!({ "text": "as ordered", "by": name, "execution": line + 1 });
        if let Some(execution) = self.lines().get_mut(line) {
            execution.output = Some(output.clone());
        }
        output
    }
}

async fn take_up(State(shared): State<Arc<Shared>>, Path(name): Path<String>, headers: HeaderMap) -> impl IntoResponse {
    let attempt = headers.get("onejob-attempt-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let line = {
        let mut lines = shared.lines();
        lines.push(Execution { provider: name.clone(), attempt, output: None });
        lines.len() - 1
    };
    // A task of its own: work that was taken up goes on when the caller hangs up.
    let work = tokio::spawn(async move { shared.work(line, &name).await });
    let answer = json!({ "output": work.await.unwrap_or_default() });
    ([(header::CONTENT_TYPE, "application/json")], answer.to_string())
}
