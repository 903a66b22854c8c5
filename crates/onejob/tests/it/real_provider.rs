//! The chat presets against a provider that nobody here wrote: PyPI's `llmock`, whose own journal
//! counts the executions. Installed into a throw-away environment under `target/tmp`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::world::{PATIENCE, World};

/// The version that the figures in the documents were taken with.
const LLMOCK: &str = "llmock==0.2.2";

/// How long the provider takes to answer, in milliseconds; the tasks below time out after 1 s.
const LATENCY_MS: u32 = 4_000;

struct Llmock {
    process: Child,
    url: String,
}

impl Drop for Llmock {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The path of the installed program.
fn installed() -> PathBuf {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED
        .get_or_init(|| {
            let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(LLMOCK.replace("==", "-"));
            let program = place.join("bin/llmock");
            let runs = Command::new(&program).arg("--help").output().is_ok_and(|output| output.status.success());
            if !runs {
                // The half-made environment of an interrupted run, or one whose folder was moved, is made anew.
                drop(std::fs::remove_dir_all(&place));
                run(Command::new("python3").args(["-m", "venv"]).arg(&place));
                run(Command::new(place.join("bin/pip")).args(["install", "--quiet", LLMOCK]));
            }
            program
        })
        .clone()
}

fn run(command: &mut Command) {
    let help = "this test needs python3 with venv (Debian: apt-get install python3-venv) and PyPI, to install llmock";
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {help}"));
    assert!(output.status.success(), "{command:?}: {}; {help}", String::from_utf8_lossy(&output.stderr));
}

impl Llmock {
    async fn start() -> Llmock {
        let program = installed();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(program)
            .args([
                "serve",
                "--host",
                "127.0.0.1",
                "--port",
                &port.to_string(),
                "--latency-ms",
                &LATENCY_MS.to_string(),
            ])
            .args(["--log-level", "warning"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let llmock = Llmock { process, url: format!("http://127.0.0.1:{port}") };
        let end = tokio::time::Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(tokio::time::Instant::now() < end, "llmock does not listen");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        llmock
    }

    /// What it did, by its own journal.
    async fn journal(&self) -> Vec<Value> {
        let url = format!("{}/_llmock/requests", self.url);
        let text =
            tokio::task::spawn_blocking(move || ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap());
        let journal: Value = serde_json::from_str(&text.await.unwrap()).unwrap();
        journal["requests"].as_array().unwrap().clone()
    }
}

fn config(llmock: &Llmock) -> String {
    let tables = r#"
[providers.openai]
preset = "openai-chat"
model = "gpt-4.1-mini"
base_url = "{url}/v1"
api_key = { file = "key" }

[providers.anthropic]
preset = "anthropic-messages"
model = "claude-haiku-4-5"
base_url = "{url}/anthropic"
api_key = { file = "key" }

[tasks.openai]
providers = ["openai"]
attempt_timeout = "1s"
linger = "30s"
[tasks.openai.chat]
system = "You greet."
user = "Say hello to {{ input.name }}."
max_output_tokens = 100

[tasks.anthropic]
providers = ["anthropic"]
attempt_timeout = "1s"
linger = "30s"
[tasks.anthropic.chat]
system = "You greet."
user = "Say hello to {{ input.name }}."
max_output_tokens = 100
temperature = 0.0
"#;
    tables.replace("{url}", &llmock.url)
}

fn click(task: &str) -> Value {
    json!({ "owner": task, "task": task, "input": { "name": "Ada" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn four_seconds_of_silence_at_a_real_provider_are_one_execution_and_its_late_answer_is_the_result() {
    let llmock = Llmock::start().await;
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "sk-not-a-secret\n").unwrap();
    let world = World::with("", &config(&llmock).replace("\"key\"", &format!("{key:?}"))).await;

    let mut jobs = Vec::new();
    for task in ["openai", "anthropic"] {
        let job = world.submit_body("click", click(task)).await;
        assert_eq!(job.status, 201, "{job:?}");
        jobs.push((task, job.id()));
    }
    for (task, id) in &jobs {
        let job = world.until_state(id, "unknown").await;
        assert_eq!(job["attempts"][0]["cause"], "timeout", "{task}");
        // The impatient click, at the worst moment.
        let again = world.submit_body("click", click(task)).await;
        assert_eq!((again.status, &again.id()), (200, id));
    }
    for (task, id) in &jobs {
        let job = world.until_state(id, "succeeded").await;
        assert_eq!(job["attempts"][0]["resolution"]["by"], "late_answer", "{task}");
        assert!(job["result"].as_str().is_some_and(|text| !text.is_empty()), "{task}: {}", job["result"]);
        assert!(job["attempts"][0]["usage"]["output_tokens"].as_u64().is_some_and(|n| n > 0), "{task}: {job}");
        assert!(job["attempts"][0]["model"].is_string());
        assert_eq!(job["attempts"].as_array().unwrap().len(), 1);
    }
    let journal = llmock.journal().await;
    for provider in ["openai", "anthropic"] {
        let executions: Vec<_> =
            journal.iter().filter(|row| row["provider"] == provider && row["status"] == 200).collect();
        assert_eq!(executions.len(), 1, "{provider} by its own journal: {journal:?}");
    }
    let openai = journal.iter().find(|row| row["provider"] == "openai").unwrap();
    assert_eq!(openai["body"]["messages"][0], json!({ "role": "system", "content": "You greet." }));
    assert_eq!(openai["body"]["messages"][1], json!({ "role": "user", "content": "Say hello to Ada." }));
    let anthropic = journal.iter().find(|row| row["provider"] == "anthropic").unwrap();
    assert_eq!(anthropic["body"]["system"], "You greet.");
    assert_eq!((&anthropic["body"]["max_tokens"], &anthropic["body"]["temperature"]), (&json!(100), &json!(0.0)));
    world.end().await;
}
