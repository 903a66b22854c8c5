//! The demo's server: `onejob serve` as a process of its own, so that it can be killed.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use super::super::client::{Client, Send, ServerArgs};
use super::super::exit::Exit;
use super::super::{Stop, serve};
use super::provider::Provider;

/// A node that is not ready by then never will be.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A folder with a configuration and a store, and a process that serves them.
pub(super) struct Node {
    folder: PathBuf,
    config: PathBuf,
    child: Option<Child>,
    /// Speaks to the process, whichever one runs.
    pub(super) client: Client,
    /// Where it listens.
    pub(super) url: String,
}

impl Node {
    /// Makes the folder and starts the process. `timeout` is that of the tasks that are not patient.
    pub(super) fn start(provider: &Provider, timeout: Duration) -> Result<Node, Stop> {
        let folder = make_folder().map_err(|error| failed("no temporary folder", &error.to_string()))?;
        let port = free_port().map_err(|error| failed("no free port", &error.to_string()))?;
        let config = folder.join("onejob.toml");
        let text = configuration(port, provider, timeout);
        fs::write(&config, text).map_err(|error| failed("cannot write its configuration", &error.to_string()))?;
        let url = format!("http://127.0.0.1:{port}");
        let client = Client::new(&ServerArgs { url: url.clone(), access_key: None, json: false })?;
        let mut node = Node { folder, config, child: None, client, url };
        node.run()?;
        Ok(node)
    }

    /// Starts the process, on the same folder and port as before, and waits until it is ready.
    pub(super) fn run(&mut self) -> Result<(), Stop> {
        let cannot = |error: std::io::Error| failed("cannot start `onejob serve`", &error.to_string());
        let log = File::options().create(true).append(true).open(self.log()).map_err(cannot)?;
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args(["demo", "--node"]).arg(&self.config);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        // A terminal's Ctrl-C and hang-up are for the demo alone: the node sees the demo end, and
        // tidies up.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(cannot)?;
        let child = self.child.insert(child);
        let end = Instant::now() + READY_WITHIN;
        loop {
            let ready = self.client.call(&["readyz"], Send::Get(&[]), Duration::ZERO);
            if ready.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if child.try_wait().map_err(cannot)?.is_some() || Instant::now() > end {
                let log = fs::read_to_string(self.folder.join("node.log")).unwrap_or_default();
                return Err(failed("`onejob serve` is not ready", log.trim_end()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its process id, as long as it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// kill -9: no last word, no clean end.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error says that it is gone already.
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.join("node.log")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

/// The process behind [`Node`]: serves, and ends when the demo that started it is gone.
pub(super) fn serve_until_orphaned(config: &Path) -> ExitCode {
    let folder = config.parent().map(Path::to_path_buf);
    std::thread::spawn(move || {
        // The demo holds the other end and never writes: this returns when the demo has ended,
        // however it ended.
        let _end = std::io::stdin().read_to_end(&mut Vec::new());
        if let Some(folder) = folder {
            let _gone = fs::remove_dir_all(folder);
        }
        std::process::exit(0);
    });
    serve::run(config, false)
}

fn configuration(port: u16, provider: &Provider, timeout: Duration) -> String {
    let mut text = format!("[server]\nlisten = \"127.0.0.1:{port}\"\nstore = \"sqlite:onejob.db\"\n");
    for name in ["main", "backup"] {
        text.push_str(&format!(
            "\n[providers.{name}]\nkind = \"http\"\n[providers.{name}.request]\nmethod = \"POST\"\nurl = \"{}\"\n\
             body = {{ input = \"{{{{ input }}}}\" }}\n[providers.{name}.response]\noutput = \"{{{{ body.output }}}}\"\n",
            provider.url(name),
        ));
    }
    // The patient tasks wait for as long as a loaded machine may need: here the demo's clock decides.
    let timeout = timeout.as_millis();
    for (task, providers, rest) in [
        ("summarize", "[\"main\"]", "attempt_timeout = \"2m\"\n".to_owned()),
        ("poster", "[\"main\", \"backup\"]", format!("attempt_timeout = \"{timeout}ms\"\n")),
        ("translate", "[\"main\", \"backup\"]", "effects = \"racing\"\nattempt_timeout = \"2m\"\n".to_owned()),
        ("charge", "[\"main\"]", "attempt_timeout = \"2m\"\n".to_owned()),
    ] {
        text.push_str(&format!("\n[tasks.{task}]\nproviders = {providers}\n{rest}"));
    }
    text
}

fn make_folder() -> std::io::Result<PathBuf> {
    let name = format!("onejob-demo-{}", uuid::Uuid::now_v7().simple());
    let folder = std::env::temp_dir().join(name);
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&folder)?;
    Ok(folder)
}

/// A port that is free now, below those that systems give to outgoing connections: nobody takes one
/// of these by chance while the node is down. If somebody does, the demo says so and ends.
fn free_port() -> std::io::Result<u16> {
    let mut tried = Err(std::io::ErrorKind::AddrInUse.into());
    for _ in 0..100 {
        let port = fastrand::u16(20_000..32_000);
        tried = TcpListener::bind(("127.0.0.1", port)).map(|_| port);
        if tried.is_ok() {
            break;
        }
    }
    tried
}

fn failed(what: &str, why: &str) -> Stop {
    Stop::told(Exit::JobNotDone, format!("the demo cannot run: {what}: {why}"))
}
