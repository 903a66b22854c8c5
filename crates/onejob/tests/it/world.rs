//! A world with one node, one provider and a client. It checks itself when it ends.

use std::sync::Arc;
use std::time::Duration;

use onejob::config::Config;
use onejob::engine::Engine;
use onejob::id;
use onejob::store::{Begun, Certificate, CertificateFilter, Run, Verification, VerificationId};
use onejob_core::CertificateId;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::provider::ProviderServer;

/// The one generous limit of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) provider: ProviderServer,
    pub(crate) dir: tempfile::TempDir,
    more: String,
    node: Option<Node>,
}

struct Node {
    url: String,
    engine: Engine,
    stop: oneshot::Sender<()>,
    run: JoinHandle<()>,
    stop_api: oneshot::Sender<()>,
    api: JoinHandle<()>,
}

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The name of the problem that this answer is.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        self.json()["type"].as_str().unwrap().strip_prefix("https://onejob.dev/problems/").unwrap().to_owned()
    }

    pub(crate) fn id(&self) -> String {
        self.json()["id"].as_str().unwrap().to_owned()
    }
}

const CONFIG: &str = r#"
[server]
store = "sqlite:onejob.db"
shutdown_grace = "2s"
{server}

[providers.main]
kind = "http"
[providers.main.request]
method = "POST"
url = "{url}/main/do"
body = { do = "{{ input.do }}" }
[providers.main.response]
output = "{{ body.output }}"
model = "{{ body.model }}"

[providers.backup]
kind = "http"
[providers.backup.request]
method = "POST"
url = "{url}/backup/do"
body = { do = "{{ input.do }}" }
[providers.backup.response]
output = "{{ body.output }}"
model = "{{ body.model }}"

[tasks.plain]
providers = ["main"]
attempt_timeout = "400ms"
linger = "20s"
backoff = "10ms"
tries = 2
max_attempts = 3

[tasks.patient]
providers = ["main"]
attempt_timeout = "20s"

[tasks.race]
providers = ["main", "backup"]
effects = "racing"
attempt_timeout = "20s"
linger = "20s"
{more}
"#;

/// What the contracts of stories stand on; nobody runs them but those who say so.
const CASES: &str = "[[case]]\nname = \"one\"\ninput = { do = { output = { n = 1 } } }\n";

impl World {
    pub(crate) async fn new() -> World {
        World::with("", "").await
    }

    /// A world with more keys under `[server]` and more tables.
    pub(crate) async fn with(server: &str, more: &str) -> World {
        World::with_files(server, more, &[]).await
    }

    /// The same, with files that the tables name.
    pub(crate) async fn with_files(server: &str, more: &str, files: &[(&str, String)]) -> World {
        let provider = ProviderServer::start().await;
        let more = CONFIG.replace("{server}", server).replace("{more}", more).replace("{url}", &provider.url);
        let mut world = World { provider, dir: tempfile::tempdir().unwrap(), more, node: None };
        std::fs::write(world.dir.path().join("cases.toml"), CASES).unwrap();
        files.iter().for_each(|(name, text)| world.write(name, text));
        world.start().await;
        world
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::new(Config::parse(&self.more, "onejob.toml", self.dir.path(), &|_| None).unwrap())
    }

    pub(crate) fn edit_config(&mut self, from: &str, to: &str) {
        assert!(self.more.contains(from), "{from} is not in the configuration");
        self.more = self.more.replace(from, to);
    }

    pub(crate) async fn start(&mut self) {
        assert!(self.node.is_none());
        let engine = Engine::open(self.config()).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let (stop_api, api_stopped) = oneshot::channel::<()>();
        let running = engine.clone();
        let run = tokio::spawn(async move { running.run(async { drop(stopped.await) }).await });
        let api = tokio::spawn(onejob::api::serve(engine.clone(), listener, async { drop(api_stopped.await) }));
        self.node = Some(Node { url, engine, stop, run, stop_api, api });
    }

    /// A polite stop: what is in flight may finish for the grace time.
    pub(crate) async fn stop(&mut self) {
        let node = self.node.take().unwrap();
        drop(node.stop);
        node.run.await.unwrap();
        drop(node.stop_api);
        node.api.await.unwrap();
    }

    /// Begins a polite stop and leaves the node answering meanwhile.
    pub(crate) fn begin_stop(&mut self) -> JoinHandle<()> {
        let node = self.node.as_mut().unwrap();
        let (never, _) = oneshot::channel();
        drop(std::mem::replace(&mut node.stop, never));
        std::mem::replace(&mut node.run, tokio::spawn(async {}))
    }

    /// A certificate of `provider` for `task`, as if its contract had been run and passed.
    pub(crate) async fn certify(&self, task: &str, provider: &str) -> CertificateId {
        self.certify_for(task, provider, 3_600_000).await
    }

    /// One that is valid for so many milliseconds.
    pub(crate) async fn certify_for(&self, task: &str, provider: &str, valid_ms: i64) -> CertificateId {
        let engine = self.engine();
        let config = engine.config();
        let contract_digest = config.contract_digest(&config.tasks[task], &config.providers[provider]);
        let run = Run { id: VerificationId(fastrand::u128(..)), task: task.into(), provider: provider.into() };
        let begun = engine.begin_verification(run.clone(), Duration::from_secs(9)).await.unwrap();
        assert_eq!(begun, Begun::Yes);
        let now = engine.store().now();
        let certificate = Certificate {
            id: id::new_certificate_id(),
            task: run.task.clone(),
            provider: run.provider.clone(),
            contract_digest,
            model: Some("m-1".into()),
            detail: "{}".into(),
            issued_at: now,
            valid_until: now + valid_ms,
            suspended: None,
        };
        let id = certificate.id;
        let passed = Verification {
            contract_digest,
            started_at: now,
            ended_at: now,
            passed: true,
            report: "{}".into(),
            certificate: Some(id),
        };
        assert!(engine.end_verification(run, passed, Some(certificate)).await.unwrap());
        id
    }

    /// Why a certificate does not hold, if it was taken back.
    pub(crate) async fn suspended(&self, id: CertificateId) -> Option<String> {
        let filter = CertificateFilter { limit: 1_000, ..CertificateFilter::default() };
        let all = self.engine().certificates(filter).await.unwrap();
        let found = all.into_iter().find(|certificate| certificate.id == id).unwrap();
        found.suspended.map(|suspended| suspended.because.to_string())
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.node.as_ref().unwrap().engine
    }

    pub(crate) fn url(&self) -> String {
        self.node.as_ref().unwrap().url.clone()
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Answer {
        let url = format!("{}{path}", self.url());
        let method = method.to_owned();
        let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        tokio::task::spawn_blocking(move || {
            let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            let mut request = ureq::http::Request::builder().method(method.as_str()).uri(url);
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            let mut response = match body {
                Some(body) => agent.run(request.body(body).unwrap()),
                None => agent.run(request.body(()).unwrap()),
            }
            .unwrap();
            Answer {
                status: response.status().as_u16(),
                headers: response
                    .headers()
                    .iter()
                    .map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned()))
                    .collect(),
                text: response.body_mut().read_to_string().unwrap(),
            }
        })
        .await
        .unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, &[("content-type", "application/json")], Some(body.to_string())).await
    }

    /// Posts a job of `task` that tells the provider what to do.
    pub(crate) async fn submit(&self, key: &str, task: &str, what: Value) -> Answer {
        self.submit_body(key, json!({ "owner": "user_1", "task": task, "input": { "do": what } })).await
    }

    pub(crate) async fn submit_body(&self, key: &str, body: Value) -> Answer {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.call("POST", "/v1/jobs", &headers, Some(body.to_string())).await
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        let answer = self.get(&format!("/v1/jobs/{id}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// The job, as soon as `test` holds.
    pub(crate) async fn until(&self, id: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let job = self.job(id).await;
            if test(&job) {
                return job;
            }
            assert!(tokio::time::Instant::now() < end, "never {what}: {job:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn until_state(&self, id: &str, state: &str) -> Value {
        self.until(id, state, |job| job["state"] == state).await
    }

    /// The kinds of the job's notices, oldest first.
    pub(crate) async fn notices(&self, id: &str) -> Vec<String> {
        let list = self.get(&format!("/v1/jobs/{id}/notices")).await.json();
        list["notices"].as_array().unwrap().iter().map(|n| n["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends the story: stops the node and checks what must be true of every world, that no job has
    /// two winners and that no attempt is left starting or running. `Drop` cannot wait, so a story
    /// says this itself; one that forgets is told so.
    pub(crate) async fn end(mut self) {
        if self.node.is_some() {
            self.stop().await;
        }
        let options = onejob::store::SqliteOptions::default();
        let store = onejob::store::SqliteStore::open(&self.dir.path().join("onejob.db"), options).unwrap();
        let store = onejob::store::Store::Sqlite(Arc::new(store));
        let filter = onejob::store::JobFilter { limit: 10_000, ..Default::default() };
        for record in store.list_jobs(filter).await.unwrap() {
            assert_eq!(record.job.unsound(), None, "{record:?}");
            let live = record.job.attempts.iter().filter(|a| a.state.is_live()).count();
            assert_eq!(live, 0, "an attempt was left behind: {record:?}");
        }
        store.close().await;
        self.more.clear();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        assert!(self.more.is_empty() || std::thread::panicking(), "a story must close with world.end().await");
    }
}

/// The states of a job's attempts.
pub(crate) fn states(job: &Value) -> Vec<&str> {
    job["attempts"].as_array().unwrap().iter().map(|a| a["state"].as_str().unwrap()).collect()
}
