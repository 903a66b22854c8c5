//! The things that are measured: a node in this process with a provider beside it, and the bare
//! statements on a file of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use onejob_core::{Effects, Plan, Start, Trigger};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::engine::{self, Engine};
use crate::id;
use crate::intent::{Intent, digest};
use crate::store::sqlite::bare::{Bare, Commits, Life};
use crate::store::{SqliteOptions, Submit, Work};

/// Lives made ahead for a bare loop; it runs over them in rounds until its time is up.
const ROUND: usize = 6_400;

/// A folder that is removed with everything in it.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(parent: &Path) -> Result<Folder, String> {
        let path = parent.join(format!("onejob-bench-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// A file with so many finished jobs.
    pub(super) fn filled(&self, finished: u64) -> Result<PathBuf, String> {
        let path = self.0.join(format!("filled-{finished}.db"));
        let mut bare = Bare::open(&path, &options()).map_err(|error| error.to_string())?;
        bare.fill((0..finished).filter_map(|_| life())).map_err(|error| error.to_string())?;
        Ok(path)
    }

    /// A copy of a closed file under another name, so that each measurement begins from the same state.
    pub(super) fn copy(&self, base: &Path, name: &str) -> Result<PathBuf, String> {
        let path = self.0.join(format!("{name}-{}.db", uuid::Uuid::now_v7().simple()));
        std::fs::copy(base, &path).map_err(|error| format!("cannot copy to {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is left where everyone can see it.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The settings of the product's own default.
fn options() -> SqliteOptions {
    let cache_bytes = crate::config::Config::from_text("").map_or(64 << 20, |config| config.server.sqlite_cache_bytes);
    SqliteOptions { cache_bytes, ..SqliteOptions::default() }
}

/// A random key, as clients make them: each lands elsewhere in the key's index.
pub(super) fn random_key() -> String {
    format!("{:032x}", fastrand::u128(..))
}

fn life() -> Option<Life> {
    let input = json!({ "text": "x".repeat(200) });
    let at = engine::now();
    let plan = Plan { provider: "instant".into(), primary: "instant".into(), certificate: None, due_at: at };
    let start = Start {
        attempt: id::new_attempt_id(),
        provider: "instant".into(),
        primary: "instant".into(),
        certificate: None,
        trigger: Trigger::Plan,
        node: id::new_node_id(),
    };
    let submit = Submit {
        id: id::new_job_id(),
        owner: format!("user_{}", fastrand::u32(0..10_000)).into(),
        idempotency_key: random_key().into(),
        intent: Intent::new("instant", &input, None),
        metadata: "{}".into(),
        priority: 0,
        run_at: None,
        deadline: None,
        effects: Effects::Exclusive,
        plan,
        start: None,
        at,
    };
    let text = json!({ "ok": true }).to_string();
    let result = onejob_core::Payload { digest: digest(text.as_bytes()), text: text.into() };
    Life::of(&submit, &start, result)
}

/// Bare inserts per second.
pub(super) fn bare_submit(path: &Path, per_commit: usize, time: Duration) -> Result<f64, String> {
    in_rounds(path, time, |bare, lives| bare.submit(lives, per_commit))
}

/// Bare lives per second.
pub(super) fn bare_life(path: &Path, per_commit: usize, time: Duration, commits: Commits) -> Result<f64, String> {
    in_rounds(path, time, |bare, lives| bare.live(lives, per_commit, commits))
}

fn in_rounds(
    path: &Path,
    time: Duration,
    mut round: impl FnMut(&mut Bare, &[Life]) -> rusqlite::Result<Duration>,
) -> Result<f64, String> {
    let mut bare = Bare::open(path, &options()).map_err(|error| error.to_string())?;
    let (mut done, mut spent) = (0, Duration::ZERO);
    while spent < time {
        let lives: Vec<Life> = (0..ROUND).filter_map(|_| life()).collect();
        spent += round(&mut bare, &lives).map_err(|error| error.to_string())?;
        done += lives.len();
    }
    Ok(done as f64 / spent.as_secs_f64())
}

/// A node and a provider that writes down when each request reached it.
pub(super) struct Node {
    pub(super) address: std::net::SocketAddr,
    engine: Engine,
    runtime: Option<Runtime>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
    receipts: std::sync::Mutex<mpsc::UnboundedReceiver<(u64, Instant)>>,
}

const CONFIG: &str = r#"
[server]
store = "{store}"
max_open_requests = 100000
shutdown_grace = "30s"
[providers.instant]
kind = "simulated"
concurrency = 1024
[providers.receiver]
kind = "http"
concurrency = 1024
[providers.receiver.request]
method = "POST"
url = "http://{receiver}/"
body = { n = "{{ input.n }}" }
[tasks.instant]
providers = ["instant"]
[tasks.receiver]
providers = ["receiver"]
"#;

impl Node {
    /// On a file of its own.
    pub(super) fn on_file(file: &Path) -> Result<Node, String> {
        Node::start(&format!("sqlite:{}", file.display()))
    }

    /// On a store as `server.store` names it.
    pub(super) fn start(store: &str) -> Result<Node, String> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
        let (sender, receipts) = mpsc::unbounded_channel();
        let (address, engine, stop, ended) = runtime.block_on(async {
            let receiver = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
            let at = receiver.local_addr().map_err(|error| error.to_string())?;
            tokio::spawn(receive(receiver, sender));
            let text = CONFIG.replace("{store}", store).replace("{receiver}", &at.to_string());
            let config = Config::from_text(&text).map_err(|errors| errors.to_string())?;
            let engine = Engine::open(Arc::new(config)).await.map_err(|error| error.to_string())?;
            let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
            let address = listener.local_addr().map_err(|error| error.to_string())?;
            let (stop, stopped) = oneshot::channel::<()>();
            let (end, ended) = oneshot::channel::<()>();
            tokio::spawn(crate::api::serve(engine.clone(), listener, std::future::pending()));
            let running = engine.clone();
            tokio::spawn(async move {
                running.run(async { drop(stopped.await) }).await;
                // Nobody may be waiting any more.
                let _ = end.send(());
            });
            Ok::<_, String>((address, engine, stop, ended))
        })?;
        Ok(Node { address, engine, runtime: Some(runtime), stop, ended, receipts: std::sync::Mutex::new(receipts) })
    }

    pub(super) fn work(&self) -> Work {
        self.engine.store().work()
    }

    /// Jobs that have ended well since the start.
    pub(super) fn succeeded(&self) -> u64 {
        let label = engine::metrics::Outcome { outcome: "succeeded" };
        self.engine.metrics().jobs.get_or_create(&label).get()
    }

    /// Receipts so far, taken away.
    pub(super) fn receipts(&self) -> Vec<(u64, Instant)> {
        let mut receipts = self.receipts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::iter::from_fn(|| receipts.try_recv().ok()).collect()
    }

    pub(super) fn stop(mut self) {
        drop(self.stop);
        if let Some(runtime) = self.runtime.take() {
            runtime.block_on(async { drop(self.ended.await) });
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

/// Numbers of requests, for those that carry none.
static UNNUMBERED: AtomicU64 = AtomicU64::new(u64::MAX / 2);

async fn receive(listener: TcpListener, receipts: mpsc::UnboundedSender<(u64, Instant)>) {
    while let Ok((stream, _)) = listener.accept().await {
        let receipts = receipts.clone();
        // Latency is what is measured: no waiting for fuller packets.
        drop(stream.set_nodelay(true));
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (receipts, at) = (receipts.clone(), Instant::now());
                async move {
                    let body = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                    let text = std::str::from_utf8(&body).unwrap_or_default();
                    let n = text.chars().filter(char::is_ascii_digit).collect::<String>().parse();
                    let _ = receipts.send((n.unwrap_or_else(|_| UNNUMBERED.fetch_add(1, Ordering::Relaxed)), at));
                    Ok::<_, hyper::Error>(Response::new("{\"ok\":true}".to_owned()))
                }
            });
            // A connection that breaks shows as a request that was not received.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}
