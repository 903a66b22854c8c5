//! kill -9 at random moments under load, a hundred times: nothing acknowledged is lost, no job has
//! two winners, nothing is executed twice, and the file opens clean (R5, R10).

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onejob::store::{SqliteStore, Store};
use onejob_core::JobState;
use serde_json::json;

use super::provider::ProviderServer;
use super::world::PATIENCE;

const ROUNDS: u32 = 100;
const CLIENTS: usize = 6;

/// A node in a process of its own, on one port and one file.
struct Serve {
    dir: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl Serve {
    fn new(provider: &ProviderServer) -> Serve {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\nstore = \"sqlite:onejob.db\"\n[providers.main]\nkind = \"http\"\n\
             [providers.main.request]\nmethod = \"POST\"\nurl = \"{}/main/do\"\nbody = {{ do = \"{{{{ input.do }}}}\" }}\n\
             [providers.main.response]\noutput = \"{{{{ body.output }}}}\"\n[tasks.plain]\nproviders = [\"main\"]\nbackoff = \"10ms\"\n",
            provider.url
        );
        std::fs::write(dir.path().join("onejob.toml"), config).unwrap();
        Serve { dir, port, process: None }
    }

    fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_onejob"))
            .args(["serve", "--config", "onejob.toml"])
            .current_dir(self.dir.path())
            .env("ONEJOB_LOG", "error")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let end = Instant::now() + PATIENCE;
        while self.call("GET", "/readyz", None).is_none_or(|(status, _)| status != 200) {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap();
            assert!(Instant::now() < end, "not ready: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn call(&self, method: &str, path: &str, post: Option<(&str, String)>) -> Option<(u16, serde_json::Value)> {
        call(self.port, method, path, post)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

fn call(port: u16, method: &str, path: &str, post: Option<(&str, String)>) -> Option<(u16, serde_json::Value)> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build();
    let agent: ureq::Agent = config.into();
    let request = ureq::http::Request::builder().method(method).uri(format!("http://127.0.0.1:{port}{path}"));
    let mut response = match post {
        Some((key, body)) => {
            let request = request.header("content-type", "application/json").header("idempotency-key", key);
            agent.run(request.body(body).unwrap()).ok()?
        }
        None => agent.run(request.body(()).unwrap()).ok()?,
    };
    let text = response.body_mut().read_to_string().ok()?;
    Some((response.status().as_u16(), serde_json::from_str(&text).unwrap_or_default()))
}

/// Posts one key after the other, each until it is acknowledged.
fn client(n: usize, port: u16, stop: &AtomicBool, acknowledged: &Mutex<HashMap<String, String>>) {
    let mut i = 0;
    while !stop.load(Ordering::SeqCst) {
        let key = format!("c{n}-{i}");
        let body = json!({ "owner": "u", "task": "plain", "input": { "do": { "delay_ms": 3 * (i % 7) } } }).to_string();
        match call(port, "POST", "/v1/jobs", Some((&key, body))) {
            Some((200 | 201, job)) => {
                let id = job["id"].as_str().unwrap().to_owned();
                acknowledged.lock().unwrap().insert(key, id);
                i += 1;
            }
            // Down, or going down: the same key again.
            Some((503, _)) | None => std::thread::sleep(Duration::from_millis(5)),
            Some(other) => panic!("{key}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r10_a_hundred_kills_lose_nothing_and_repeat_nothing() {
    let seed = std::env::var("ONEJOB_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("ONEJOB_SEED={seed}");
    let provider = ProviderServer::start().await;
    let ledger = provider.clone();
    let (dir, acknowledged) =
        tokio::task::spawn_blocking(move || storm(&provider, fastrand::Rng::with_seed(seed))).await.unwrap();
    let file = dir.path().join("onejob.db");

    let checked: String = {
        let raw = rusqlite::Connection::open(&file).unwrap();
        raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(checked, "ok", "the file opens clean");

    let store = Store::Sqlite(Arc::new(SqliteStore::open(&file, Default::default()).unwrap()));
    let (mut succeeded, mut unknown) = (0, 0);
    for (key, id) in &acknowledged {
        let record =
            store.job(onejob::id::parse_job(id).unwrap()).await.unwrap().unwrap_or_else(|| panic!("{key} is lost"));
        assert_eq!(&*record.idempotency_key, key.as_str());
        assert_eq!(record.job.unsound(), None, "{record:?}");
        let executions = ledger.executions(id);
        match record.job.state() {
            JobState::Succeeded => {
                succeeded += 1;
                assert_eq!(executions, 1, "{key} succeeded: {record:?}");
            }
            JobState::Unknown => {
                unknown += 1;
                assert!(executions <= 1, "{key} was executed {executions} times and nobody knows");
            }
            JobState::Queued | JobState::Running | JobState::Failed | JobState::Cancelled => {
                panic!("{key} is {} after the end: {record:?}", record.job.state().as_str())
            }
        }
    }
    store.close().await;
    println!("{} acknowledged over {ROUNDS} kills: {succeeded} succeeded, {unknown} unknown", acknowledged.len());
    assert!(succeeded > ROUNDS as usize, "too little load to say anything");
    assert!(unknown > 0, "no kill hit an attempt: it says nothing about them");
}

fn storm(provider: &ProviderServer, mut rng: fastrand::Rng) -> (tempfile::TempDir, HashMap<String, String>) {
    let mut serve = Serve::new(provider);
    let stop = AtomicBool::new(false);
    let acknowledged = Mutex::new(HashMap::new());
    let port = serve.port;
    serve.start();
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            let (stop, acknowledged) = (&stop, &acknowledged);
            scope.spawn(move || client(n, port, stop, acknowledged));
        }
        for _ in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(rng.u64(0..120)));
            serve.kill();
            serve.start();
        }
        stop.store(true, Ordering::SeqCst);
    });
    // What is in flight and queued may come to its end.
    let end = Instant::now() + PATIENCE;
    for state in ["queued", "running"] {
        loop {
            let (_, page) = serve.call("GET", &format!("/v1/jobs?state={state}"), None).unwrap();
            if page["jobs"].as_array().unwrap().is_empty() {
                break;
            }
            assert!(Instant::now() < end, "{state} jobs never end: {page}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    serve.kill();
    let dir = std::mem::replace(&mut serve.dir, tempfile::tempdir().unwrap());
    (dir, acknowledged.into_inner().unwrap())
}
