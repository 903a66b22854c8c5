//! Providers: the outside systems that do the work. One call per attempt, nothing below us retries,
//! and how far a call has come is known for certain at every moment.

pub mod http;
pub mod simulated;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use onejob_core::{AttemptId, Failure, FailureClass, JobId, Meaning, Phase, Seen, Text};
use serde_json::{Value, json};

use crate::config::{Chat, ProviderConfig, ProviderKind};
use crate::contract::Breach;
use crate::id;
use crate::template::{Scope, Template};

/// A provider that is ready to be called.
pub enum Provider {
    /// Any HTTP API, as its definition says.
    Http(Box<http::HttpProvider>),
    /// Misbehaves on demand, in this process.
    Simulated(simulated::SimulatedProvider),
    /// The team's own workers pull; nothing is sent. Not supported yet.
    Worker,
}

/// What a call is about: what templates see, and what is sent along.
#[derive(Clone, Debug)]
pub struct CallInput {
    /// The job.
    pub job: JobId,
    /// Its owner, for templates.
    pub owner: Text,
    /// Its task, for templates.
    pub task: Text,
    /// The attempt; its text is the idempotency key where the provider takes one.
    pub attempt: AttemptId,
    /// 1 for the job's first attempt.
    pub number: u32,
    /// The job's input.
    pub input: Value,
    /// The task's chat block, not rendered yet.
    pub chat: Option<Arc<Chat>>,
    /// Where callbacks would reach us.
    pub callback_url: String,
}

/// A request that is ready to be sent. It is made before anything leaves, so that a template that does
/// not render is a certain failure.
pub enum Prepared {
    /// For [`Provider::Http`].
    Http(http::PreparedRequest),
    /// For [`Provider::Simulated`].
    Simulated(simulated::PreparedCall),
}

/// What came of a call. The task's contract has not been checked yet.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// A whole, decodable answer, with what the definition takes from it.
    Done {
        /// The output.
        output: Value,
        /// What the provider reported about itself.
        seen: Seen,
    },
    /// The provider works in the background under this handle.
    Accepted {
        /// Its own id for the work.
        handle: Text,
        /// What the provider reported about itself.
        seen: Seen,
    },
    /// No usable answer, and what that means by the failure table.
    Broken {
        /// What it means.
        meaning: Meaning,
        /// The provider's HTTP status, where there was one.
        status: Option<u16>,
        /// The delay that it asked for, in milliseconds.
        retry_after_ms: Option<u64>,
        /// A sentence for people and logs; no secret, no whole body.
        message: Text,
        /// What the provider reported about itself, where the answer came whole.
        seen: Seen,
        /// How a whole answer breaks any contract.
        breach: Option<Breach>,
    },
}

impl Answer {
    /// A failure that no answer of the provider told.
    pub(crate) fn failed(class: FailureClass, message: &str) -> Answer {
        let (meaning, message) = (Meaning::Failed(class), message.into());
        let seen = Seen::default();
        Answer::Broken { meaning, status: None, retry_after_ms: None, message, seen, breach: None }
    }
}

/// How far a call has come. Clones share it: with whoever watches the call's deadline, and with the
/// connection that carries it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU8>);

impl Progress {
    /// A call that has not begun.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// Moves on to `phase`; never back.
    pub fn advance(&self, phase: Phase) {
        self.0.fetch_max(rank(phase), Ordering::SeqCst);
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::SeqCst) {
            0 => Phase::BeforeConnect,
            1 => Phase::Sending,
            2 => Phase::AwaitingHeaders,
            _ => Phase::InBody,
        }
    }
}

/// `{input, job, attempt}`, which every template over a call sees.
fn base_scope(call: &CallInput, input: Option<Value>) -> Scope {
    let job = json!({"id": id::job_text(call.job), "owner": &*call.owner, "task": &*call.task});
    let attempt = json!({"id": id::attempt_text(call.attempt), "number": call.number});
    let scope = Scope::new().with("job", job).with("attempt", attempt);
    match input {
        Some(input) => scope.with("input", input),
        None => scope,
    }
}

fn rank(phase: Phase) -> u8 {
    match phase {
        Phase::BeforeConnect => 0,
        Phase::Sending => 1,
        Phase::AwaitingHeaders => 2,
        Phase::InBody => 3,
    }
}

/// Why a page beside the one that does the work gave nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It is not there now, or lets nobody in: that says nothing about the provider.
    Away(String),
    /// It is there and does not do what it is for.
    Wrong(String),
}

impl Trouble {
    /// The same with other words.
    pub fn map(self, words: impl FnOnce(String) -> String) -> Trouble {
        match self {
            Trouble::Away(why) => Trouble::Away(words(why)),
            Trouble::Wrong(why) => Trouble::Wrong(words(why)),
        }
    }
}

/// Whatever goes wrong here is wrong.
impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble::Wrong(why)
    }
}

impl Provider {
    /// Makes a provider ready.
    ///
    /// # Errors
    ///
    /// A sentence for people: a secret that cannot be read, a CA file that is none.
    pub fn open(config: &ProviderConfig) -> Result<Provider, String> {
        match &config.kind {
            ProviderKind::Http(definition) => {
                Ok(Provider::Http(Box::new(http::HttpProvider::open(&config.name, config.concurrency, definition)?)))
            }
            ProviderKind::Simulated(definition) => {
                Ok(Provider::Simulated(simulated::SimulatedProvider::open(&config.name, definition)?))
            }
            ProviderKind::Worker => Ok(Provider::Worker),
        }
    }

    /// The simulated provider, whose ledger says what it was asked to do.
    pub fn as_simulated(&self) -> Option<&simulated::SimulatedProvider> {
        match self {
            Provider::Simulated(provider) => Some(provider),
            Provider::Http(_) | Provider::Worker => None,
        }
    }

    /// Renders the request.
    ///
    /// # Errors
    ///
    /// A certain failure of class `invalid`: nothing was sent.
    pub fn prepare(&self, call: &CallInput) -> Result<Prepared, Failure> {
        match self {
            Provider::Http(provider) => provider.prepare(call).map(Prepared::Http),
            Provider::Simulated(provider) => provider.prepare(call).map(Prepared::Simulated),
            Provider::Worker => Err(Failure {
                message: "providers of kind worker are not supported yet".into(),
                ..Failure::from(onejob_core::FailureClass::Invalid)
            }),
        }
    }

    /// Asks a page beside the one that does the work, such as a tokenizer. `url` is a template of the
    /// provider's definition; `sibling` is another last segment of its path.
    ///
    /// # Errors
    ///
    /// A sentence without secrets: it has none, or what it answers is no JSON.
    pub async fn ask_beside(
        &self,
        call: &CallInput,
        url: &Template,
        sibling: Option<&str>,
        body: Value,
    ) -> Result<Value, Trouble> {
        match self {
            Provider::Http(provider) => provider.ask_beside(call, url, sibling, body).await,
            Provider::Simulated(_) | Provider::Worker => {
                Err(Trouble::Wrong("this kind of provider has no such page".to_owned()))
            }
        }
    }

    /// Sends the request and waits for the end of the answer, however long it takes: deadlines are
    /// the caller's, who may drop the call. `progress` says at every moment how far it has come.
    pub async fn send(&self, request: Prepared, progress: &Progress) -> Answer {
        match (self, request) {
            (Provider::Http(provider), Prepared::Http(request)) => provider.send(request, progress).await,
            (Provider::Simulated(provider), Prepared::Simulated(call)) => provider.send(call, progress).await,
            (Provider::Http(_) | Provider::Simulated(_) | Provider::Worker, _) => {
                unreachable!("a request is sent by the provider that prepared it")
            }
        }
    }
}
