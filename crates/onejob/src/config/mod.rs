//! Configuration: the only reader of files and environment, and every default in one place.

pub mod defaults;
mod duration;
mod later;
mod preset;
mod provider;
mod section;
mod server;
mod source;
mod task;
#[cfg(test)]
mod tests;
mod text;

pub use duration::{duration_text, parse_duration};

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onejob_core::{Candidate, Effects, Override, Policy, Text};

use crate::contract::{OutputContract, Schema};
use crate::template::Template;

use section::{Findings, Item, Section};
use source::Place;

/// A whole configuration, checked: every template compiled, every schema read, every reference
/// resolved.
#[derive(Debug)]
pub struct Config {
    /// `[server]`.
    pub server: Server,
    /// `[providers.*]` by name.
    pub providers: BTreeMap<Text, Arc<ProviderConfig>>,
    /// `[tasks.*]` by name.
    pub tasks: BTreeMap<Text, Arc<Task>>,
    /// What the file names and this build does not do yet, and what an operator should know.
    pub remarks: Vec<Remark>,
}

/// Something that is no error and that nobody should miss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The key it is about, such as `providers.poster.lookup`.
    pub key: String,
    /// Its line in the file, 1-based; 0 if it has none.
    pub line: usize,
    /// What kind.
    pub kind: RemarkKind,
    /// A sentence.
    pub message: String,
}

/// Kinds of remarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemarkKind {
    /// The key is understood and this build does not act on it yet.
    NotSupportedYet,
    /// How an unknown attempt of a task can end.
    UnknownEndsBy,
}

/// Where jobs are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreLocation {
    /// `sqlite:path`; the path is absolute or relative to the configuration file, resolved.
    Sqlite(PathBuf),
    /// `memory:`; for tests and embedding, loses everything.
    Memory,
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where to listen: loopback only, until access keys come.
    pub listen: SocketAddr,
    /// Where jobs are kept.
    pub store: StoreLocation,
    /// Where callbacks would reach us, without a trailing slash.
    pub public_url: String,
    /// Attempts in flight over all providers.
    pub max_in_flight: usize,
    /// HTTP requests open at once; more get `503 overloaded`.
    pub max_open_requests: usize,
    /// Largest request body, in bytes.
    pub max_body_bytes: usize,
    /// How long a client may take to send its headers.
    pub header_timeout: Duration,
    /// How long a client may take to send its body.
    pub body_timeout: Duration,
    /// The longest `wait` that is granted.
    pub max_wait: Duration,
    /// After SIGTERM: how long what is in flight may take to finish.
    pub shutdown_grace: Duration,
    /// Page cache of the writer, in bytes (SQLite).
    pub sqlite_cache_bytes: u64,
}

/// `[tasks.<name>]`.
#[derive(Debug)]
pub struct Task {
    /// Its name.
    pub name: Text,
    /// Order of preference; the first is the primary. Never empty.
    pub providers: Vec<Text>,
    /// Whether two attempts may run side by side.
    pub effects: Effects,
    /// Silence after which an attempt is unknown.
    pub attempt_timeout: Duration,
    /// How long a late answer is awaited after that.
    pub linger: Duration,
    /// Tries per provider.
    pub tries: u32,
    /// Attempts per job.
    pub max_attempts: u32,
    /// Delay before the second try.
    pub backoff: Duration,
    /// Racing tasks: start the next provider after this silence. Not supported yet.
    pub hedge_after: Option<Duration>,
    /// What is declared for unknown attempts.
    pub on_unknown: OnUnknown,
    /// What an input must match.
    pub input_schema: Option<Schema>,
    /// For chat presets.
    pub chat: Option<Arc<Chat>>,
    /// What an answer must match.
    pub output: OutputContract,
}

/// `on_unknown`: the owner's declared decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnUnknown {
    /// Wait for evidence.
    Hold,
    /// Give an unknown attempt up after this time.
    AbandonAfter(Duration),
}

/// `[tasks.<name>.chat]`.
#[derive(Debug)]
pub struct Chat {
    /// System prompt, a template over `{input, job, attempt}`.
    pub system: Option<Template>,
    /// User prompt, a template over `{input, job, attempt}`.
    pub user: Template,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Longest output, in tokens.
    pub max_output_tokens: Option<u64>,
}

/// `[providers.<name>]`.
#[derive(Debug)]
pub struct ProviderConfig {
    /// Its name.
    pub name: Text,
    /// Attempts in flight at once.
    pub concurrency: usize,
    /// What it is.
    pub kind: ProviderKind,
}

/// What a provider is.
#[derive(Debug)]
pub enum ProviderKind {
    /// Any HTTP API.
    Http(Box<HttpDefinition>),
    /// Misbehaves on demand.
    Simulated(SimulatedDefinition),
    /// Workers that pull. Not supported yet.
    Worker,
}

/// A provider of kind `http`, preset already merged in.
#[derive(Debug)]
pub struct HttpDefinition {
    /// Secrets by name, read when the configuration was loaded.
    pub secrets: BTreeMap<String, Secret>,
    /// The preset's `model`, `base_url` and the like, visible to templates as `provider`.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// HTTP method.
    pub method: String,
    /// URL, a template that renders to a string.
    pub url: Template,
    /// Header values, templates that render to strings; names in lower case.
    pub headers: Vec<(String, Template)>,
    /// JSON body, or none.
    pub body: Option<Template>,
    /// How to read a whole 2xx answer.
    pub response: ResponseDefinition,
    /// Statuses moved to another line of the failure table.
    pub outcomes: Vec<Override>,
    /// Header that carries the attempt's id as idempotency key.
    pub idempotency_header: Option<String>,
    /// How long to resolve, connect and shake hands.
    pub connect_timeout: Duration,
    /// Largest answer that is read, in bytes.
    pub max_answer_bytes: usize,
    /// More certificate authorities, PEM, beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// `[providers.<name>.response]`: templates over `{status, headers, body, input, …}`.
#[derive(Debug, Default)]
pub struct ResponseDefinition {
    /// The output; the whole body if absent.
    pub output: Option<Template>,
    /// The model that answered.
    pub model: Option<Template>,
    /// `{input_tokens, output_tokens}`.
    pub usage: Option<Template>,
    /// Given → the provider works in the background.
    pub handle: Option<Template>,
    /// If it renders to something true, the provider reports in a 2xx answer that the work failed.
    pub failed: Option<Template>,
    /// What is said then.
    pub error: Option<Template>,
    /// If it renders to something true, the answer was cut off: it breaks any contract.
    pub truncated: Option<Template>,
}

/// A provider of kind `simulated`.
#[derive(Debug)]
pub struct SimulatedDefinition {
    /// How it behaves, a template over `{input, job, attempt}` that renders to an object; see
    /// `provider/simulated.rs`.
    pub behaviour: Option<Template>,
}

/// A secret value. Never printed: its `Debug` says `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: String) -> Secret {
        Secret(value)
    }

    /// The value itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Task {
    /// The policy of this task for a job that is, or is not, pinned to a provider. Certificates come
    /// with verification.
    pub fn policy(&self, pinned: Option<&str>) -> Policy {
        let candidate = |provider: &Text| Candidate { provider: provider.clone(), certificate: None };
        let candidates = match pinned {
            Some(pinned) => self.providers.iter().filter(|p| &***p == pinned).map(candidate).collect(),
            None => self.providers.iter().map(candidate).collect(),
        };
        Policy {
            candidates,
            tries: self.tries,
            max_attempts: self.max_attempts,
            backoff_ms: self.backoff.as_millis() as u64,
        }
    }
}

/// Why a configuration is refused: all errors found, each with its place, in the order of the file.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// One error in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file as it was named.
    pub file: String,
    /// 1-based; 0 if it has no place in a file.
    pub line: usize,
    /// The key, such as `tasks.summarize.tries`; empty if it is about no key.
    pub key: String,
    /// What was wrong and what was expected.
    pub message: String,
}

impl std::error::Error for ConfigError {}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Config {
    /// Reads a configuration file and everything it names: schemas, secrets.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every error found.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        let name = path.display().to_string();
        let text = std::fs::read(path).map_err(|error| format!("cannot read it: {}", section::plain(&error)));
        let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned()));
        let text = text.map_err(|message| {
            ConfigErrors(vec![ConfigError { file: name.clone(), line: 0, key: String::new(), message }])
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Config::parse(&text, &name, base, &|variable| std::env::var(variable).ok())
    }

    /// A configuration from a text that uses neither environment nor relative files: for embedding,
    /// demos and tests.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every error found.
    pub fn from_text(text: &str) -> Result<Config, ConfigErrors> {
        Config::parse(text, "onejob.toml", Path::new(""), &|_| None)
    }

    /// Reads a configuration from a text. `name` is the file's name in errors, paths in the text are
    /// relative to `base`, and `env` gives the value of an environment variable.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every error found.
    pub fn parse(
        text: &str,
        name: &str,
        base: &Path,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigErrors> {
        let findings = Findings::new(base, env);
        let config = read(&findings, text, name);
        let remarks = findings.into_result()?;
        // Without an error there is a configuration.
        config.map(|config| Config { remarks, ..config }).ok_or(ConfigErrors(Vec::new()))
    }
}

/// Reads everything that can be read; what is missing from the result has an error in `findings`.
fn read(findings: &Findings<'_>, text: &str, name: &str) -> Option<Config> {
    let file = findings.file(name);
    let table = match source::parse(text, file) {
        Ok(table) => table,
        Err(errors) => {
            for (line, message) in errors {
                findings.error(Place { file, line }, "", message);
            }
            return None;
        }
    };
    let root = Section::root(findings, &table, Place { file, line: 0 });
    let server = server::read(root.get("server").as_ref(), findings.base);
    let mut providers: task::Providers = BTreeMap::new();
    for (name, item) in named(&root, "providers") {
        let provider = check_name(name, &item).and_then(|()| provider::read(name, &item));
        providers.insert(name.into(), provider.map(Arc::new));
    }
    let mut tasks = BTreeMap::new();
    for (name, item) in named(&root, "tasks") {
        let task = check_name(name, &item).and_then(|()| task::read(name, &item, &providers));
        tasks.extend(task.map(|task| (Text::from(name), Arc::new(task))));
    }
    root.end(&[]);
    let providers = providers.into_iter().filter_map(|(name, provider)| Some((name, provider?))).collect();
    Some(Config { server: server?, providers, tasks, remarks: Vec::new() })
}

/// The members of `[providers]` or `[tasks]`.
fn named<'a>(root: &Section<'a>, key: &'static str) -> Vec<(&'a str, Item<'a>)> {
    let section = root.get(key).and_then(|item| item.section("a table"));
    section.map(|mut section| section.members()).unwrap_or_default()
}

/// Names stand in URLs, metrics and rows: 1–64 of `a-z`, `0-9`, `_` and `-`.
fn check_name(name: &str, item: &Item<'_>) -> Option<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Some(());
    }
    item.error(format!("expected a name of 1 to 64 of a-z, 0-9, \"_\" and \"-\", found {name:?}"));
    None
}
