//! A node: a process of the real binary, which can be killed, paused and continued.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use super::{Caller, PATIENCE};

const HOW_TO_BUILD: &str = "run `cargo build -p onejob`, or `cargo test` for the whole workspace, which does it too";

/// Few slots, so that jobs also wait in line and other nodes claim them. What was never sent may be tried
/// often: a node that holds back is no reason to fail a job.
const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:{port}"
store = "{store}"
shutdown_grace = "5s"

[providers.main]
kind = "http"
concurrency = 12
[providers.main.request]
method = "POST"
url = "{provider}/do"
body = { do = "{{ input.do }}" }
[providers.main.response]
output = "{{ body.output }}"

[tasks.plain]
providers = ["main"]
attempt_timeout = "2m"
tries = 10
max_attempts = 20
backoff = "20ms"
"#;

pub struct Node {
    pub port: u16,
    folder: tempfile::TempDir,
    process: Child,
    watcher: Option<ChildStdin>,
}

impl Node {
    pub fn start(store: &str, provider: &str) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = CONFIG.replace("{port}", &port.to_string()).replace("{store}", store);
        fs::write(folder.path().join("onejob.toml"), config.replace("{provider}", provider)).unwrap();
        let process = Command::new(binary())
            .args(["serve", "--config", "onejob.toml"])
            .current_dir(folder.path())
            .env("ONEJOB_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let watcher = Some(watcher(process.id()));
        Node { port, folder, process, watcher }
    }

    pub async fn until_ready(&self) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while Caller::hasty(self.port).get("/readyz").await.is_ok_and(|answer| answer.status == 200).eq(&false) {
            assert!(tokio::time::Instant::now() < end, "a node is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            self.process.kill().unwrap();
            self.process.wait().unwrap();
            watcher.write_all(b"ended\n").unwrap();
        }
    }

    /// `SIGSTOP`: it does nothing more, and nobody is told.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// `SIGCONT`: it goes on as if no time had passed.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.watcher.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            let log = self.log();
            let from = log.lines().count().saturating_sub(30);
            let last: Vec<&str> = log.lines().skip(from).collect();
            println!("node {} on port {}, its last words:\n{}", self.process.id(), self.port, last.join("\n"));
        }
    }
}

/// Ends the node when this process ends without having done so.
fn watcher(node: u32) -> ChildStdin {
    let script = r#"trap '' INT TERM HUP; read -r word; [ "$word" = ended ] || kill -KILL "$1""#;
    let mut watcher = Command::new("sh");
    watcher.args(["-c", script, "sh", &node.to_string()]);
    watcher.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    watcher.spawn().unwrap().stdin.take().unwrap()
}

/// The product, as built last; it stands beside this program or one folder above.
fn binary() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let binary = here.ancestors().skip(1).take(2).map(|folder| folder.join("onejob")).find(|path| path.is_file());
    let binary = binary.unwrap_or_else(|| panic!("the program onejob is not built: {HOW_TO_BUILD}"));
    if let Some(newer) = newer_source(&binary) {
        panic!("{} is older than {newer}: {HOW_TO_BUILD}", binary.display());
    }
    binary
}

/// A source that was written after the binary; cargo keeps the list of them beside it.
fn newer_source(binary: &Path) -> Option<String> {
    let written = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let list = fs::read_to_string(binary.with_extension("d")).ok()?;
    let built = written(binary)?;
    let sources = list.split_once(": ")?.1.split_whitespace().map(str::to_owned);
    sources.into_iter().find(|source| written(Path::new(source)).is_some_and(|written| written > built))
}
