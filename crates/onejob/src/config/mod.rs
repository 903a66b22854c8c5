//! Configuration: the only reader of files and environment, and every default in one place.

pub mod defaults;
mod load;
mod source;
mod section;
mod duration;
mod text;
mod server;
mod preset;
mod provider;
mod tokenizer;
mod contract;
mod task;
mod digest;
mod later;

#[cfg(test)]
mod tests;

pub use contract::{Canary, Case, Contract, OutputMode};
pub use duration::{duration_text, parse_duration};
pub use load::{ConfigError, ConfigErrors};
pub use tokenizer::{TokenizerDefinition, TokenizerSource};

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onejob_core::{Candidate, Digest, Effects, Override, Policy, Text};

use crate::contract::{OutputContract, Schema};
use crate::template::Template;

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
    /// The key is understood and has no effect where it stands.
    NoEffect,
    /// How an unknown attempt of a task can end.
    UnknownEndsBy,
}

impl RemarkKind {
    /// The word for it in output for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            RemarkKind::NotSupportedYet => "not_supported_yet",
            RemarkKind::NoEffect => "no_effect",
            RemarkKind::UnknownEndsBy => "unknown_ends_by",
        }
    }
}

/// Where jobs are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreLocation {
    /// `sqlite:path`; the path is absolute or relative to the configuration file, resolved.
    Sqlite(PathBuf),
    /// `postgres://…`: a database that any number of nodes share. The URL may hold a password.
    Postgres(Secret),
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
    /// How long a finished job is kept before only its key remains (R12).
    pub retention: Duration,
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
    /// What a provider must prove before anything fails over to it. Without one, nothing can be verified.
    pub contract: Option<Contract>,
    /// SHA-256 of all that a certificate for this task stands on.
    pub digest: Digest,
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
#[derive(Clone, Debug)]
pub struct Chat {
    /// System prompt, a template over `{input, job, attempt}`.
    pub system: Option<Template>,
    /// User prompt, a template over `{input, job, attempt}`.
    pub user: Template,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Longest output, in tokens.
    pub max_output_tokens: Option<u64>,
    /// The output mode to ask in; the provider's own if absent, as in production.
    pub mode: Option<OutputMode>,
    /// The task's output schema, for the mode that sends it, and a name for it.
    pub schema: Option<(Text, Arc<serde_json::Value>)>,
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
    /// SHA-256 of all of its definition that can change an answer: no secrets, no limits.
    pub digest: Digest,
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
    /// The output modes that it can be asked in, where it is told one.
    pub output_modes: Vec<OutputMode>,
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
    /// How prompts are counted before they are sent.
    pub tokenizer: Option<Arc<TokenizerDefinition>>,
}

/// `[providers.<name>.response]`: templates over `{status, headers, body, input, …}`.
#[derive(Clone, Debug, Default)]
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

impl std::fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreLocation::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            // The URL may hold a password.
            StoreLocation::Postgres(_) => f.write_str("a PostgreSQL database"),
            StoreLocation::Memory => f.write_str("memory:"),
        }
    }
}

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

/// A digest in hexadecimal.
pub(crate) fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Config {
    /// What a certificate of this task at this provider must have been issued for.
    pub fn contract_digest(&self, task: &Task, provider: &ProviderConfig) -> Digest {
        digest::of_both(task.digest, provider.digest)
    }
}

impl ProviderConfig {
    /// Whether it sends what a task's `chat` block says: one of its templates reads `chat`.
    pub fn reads_chat(&self) -> bool {
        match &self.kind {
            ProviderKind::Http(definition) => definition.templates().any(|template| template.names().contains("chat")),
            ProviderKind::Simulated(_) | ProviderKind::Worker => false,
        }
    }

    /// Its definition, where it is an HTTP API.
    pub fn http(&self) -> Option<&HttpDefinition> {
        match &self.kind {
            ProviderKind::Http(definition) => Some(definition),
            ProviderKind::Simulated(_) | ProviderKind::Worker => None,
        }
    }

    /// Whether its answer to a call ends the attempt: it neither works in the background nor pulls.
    pub fn answers_calls(&self) -> bool {
        match &self.kind {
            ProviderKind::Http(definition) => definition.response.handle.is_none(),
            ProviderKind::Simulated(_) => true,
            ProviderKind::Worker => false,
        }
    }
}

impl HttpDefinition {
    /// All of its templates.
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let ResponseDefinition { output, model, usage, handle, failed, error, truncated } = &self.response;
        let response = [output, model, usage, handle, failed, error, truncated];
        let headers = self.headers.iter().map(|(_, value)| value);
        headers.chain([&self.url]).chain(&self.body).chain(response.into_iter().flatten())
    }
}

impl Task {
    /// The policy of this task for a job that is, or is not, pinned to a provider. Certificates come
    /// with verification.
    pub fn policy(&self, pinned: Option<&str>) -> Policy {
        let candidate = |provider: &Text| Candidate { provider: provider.clone(), certificate: None, refuses: false };
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
