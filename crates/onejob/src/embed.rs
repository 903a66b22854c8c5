//! onejob inside a Rust service: the engine of `onejob serve` with functions in the place of HTTP.

mod within;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onejob_core::{AttemptId, JobId, Millis, Text};
use serde_json::{Map, Value};

use crate::config::{Config, Server};
use crate::engine::door::{self, Wish, member};
use crate::engine::{ByHand, Engine, Invalid, OpenError, Order, Ordered, Refusal, Resolved, Word};
use crate::intent;
use crate::json::{self, Duplicates};
use crate::store::{Applied, AttemptFilter, JobFilter, ListedAttempt, Record, StoreError, StoredNotice, Submitted};

/// One durable job per intent, inside this process. Cheap to clone; all clones are one node.
///
/// [`open`](Onejob::open) it, let [`run`](Onejob::run) go on as long as the service lives, and call the
/// rest from anywhere.
///
/// ```
/// use std::time::Duration;
/// use onejob::{Config, JobRequest, JobState, Onejob, Submitted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_text(
///     r#"
///     [server]
///     store = "memory:"            # or "sqlite:onejob.db", or "postgres://user@host/db"
///
///     [providers.main]
///     kind = "simulated"
///     behaviour = { output = { summary = "{{ input.text }}" } }
///
///     [tasks.summarize]
///     providers = ["main"]
///     "#,
/// )?;
/// let onejob = Onejob::open(config).await?;
/// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
/// let node = tokio::spawn({
///     let onejob = onejob.clone();
///     async move { onejob.run(async { stopped.await.unwrap_or(()) }).await }
/// });
///
/// let click = || JobRequest::new("user_42", "click-8f3a", "summarize", serde_json::json!({"text": "Hi"}));
/// let job = match onejob.submit(click()).await? {
///     Submitted::New(job) | Submitted::Same(job) => job,
///     Submitted::OtherIntent(_) => return Err("this key names another intent".into()),
///     Submitted::Expired(_) => return Err("this key is past its retention".into()),
/// };
/// // The second click is the same job.
/// assert!(matches!(onejob.submit(click()).await?, Submitted::Same(same) if same.job.id == job.job.id));
///
/// let job = onejob.wait(job.job.id, Duration::from_secs(10)).await?.ok_or("the job is gone")?;
/// assert_eq!(job.job.state(), JobState::Succeeded);
/// assert_eq!(job.result(), Some(serde_json::json!({"summary": "Hi"})));
/// assert_eq!(job.job.attempts.len(), 1);
///
/// drop(stop);
/// node.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Onejob {
    pub(crate) engine: Engine,
}

/// A wish for a job, as a service has it at hand.
#[derive(Clone, PartialEq, Debug)]
pub struct JobRequest {
    owner: String,
    idempotency_key: String,
    task: String,
    input: Value,
    provider: Option<String>,
    metadata: Map<String, Value>,
    priority: i32,
    run_at: Option<SystemTime>,
    deadline: Option<SystemTime>,
}

/// Why a call has no answer. What happens in normal life is no error: see [`Submitted`], [`Applied`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The request is wrong; the same again will be, too.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// This node does not take it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store has no answer: after a while the same call with the same key is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl JobRequest {
    /// What `owner` wants under this idempotency key: `task` with `input`. Everything else has its default
    /// until it is said.
    pub fn new(
        owner: impl Into<String>,
        idempotency_key: impl Into<String>,
        task: impl Into<String>,
        input: impl Into<Value>,
    ) -> JobRequest {
        JobRequest {
            owner: owner.into(),
            idempotency_key: idempotency_key.into(),
            task: task.into(),
            input: input.into(),
            provider: None,
            metadata: Map::new(),
            priority: 0,
            run_at: None,
            deadline: None,
        }
    }

    /// Only this one of the task's providers. Part of the intent.
    #[must_use]
    pub fn provider(mut self, provider: impl Into<String>) -> JobRequest {
        self.provider = Some(provider.into());
        self
    }

    /// The caller's own notes. Not part of the intent.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> JobRequest {
        self.metadata = metadata;
        self
    }

    /// -100 to 100; higher is sooner.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> JobRequest {
        self.priority = priority;
        self
    }

    /// No attempt before this moment.
    #[must_use]
    pub fn run_at(mut self, run_at: SystemTime) -> JobRequest {
        self.run_at = Some(run_at);
        self
    }

    /// No attempt starts after this moment.
    #[must_use]
    pub fn deadline(mut self, deadline: SystemTime) -> JobRequest {
        self.deadline = Some(deadline);
        self
    }

    /// Checks what the HTTP API checks, in its order.
    pub(crate) fn order(self, config: &Config) -> Result<Order, Invalid> {
        let idempotency_key = key(&self.idempotency_key)?;
        // Read as it would come from outside: what is not acceptable there is not acceptable here.
        let mut body = Map::new();
        body.insert("owner".into(), self.owner.into());
        body.insert("task".into(), self.task.into());
        body.insert("input".into(), self.input);
        body.insert("provider".into(), self.provider.map_or(Value::Null, Value::String));
        body.insert("metadata".into(), Value::Object(self.metadata));
        let body = outside(&config.server, &Value::Object(body))?;
        let text = |name| body.get(name).and_then(Value::as_str).map(Text::from);
        let (owner, task) = (text("owner").unwrap_or_default(), text("task").unwrap_or_default());
        door::check_owner(&owner)?;
        door::check_priority(self.priority)?;
        let wish = Wish {
            owner,
            idempotency_key,
            task,
            input: body.get("input").unwrap_or(&Value::Null),
            provider: text("provider"),
            metadata: body.get("metadata").map_or_else(|| "{}".into(), |it| it.to_string().into()),
            priority: self.priority,
            run_at: moment("run_at", self.run_at)?,
            deadline: moment("deadline", self.deadline)?,
        };
        door::order(config, wish)
    }
}

impl Onejob {
    /// Opens the store and the providers, and turns what a dead predecessor left open into unknown
    /// attempts. Call it inside a tokio runtime. A PostgreSQL database must be migrated
    /// (`onejob migrate`, or [`crate::store::postgres::migrate`]); a SQLite file belongs to one process.
    ///
    /// # Errors
    ///
    /// [`OpenError`], a sentence for people.
    pub async fn open(config: Config) -> Result<Onejob, OpenError> {
        Ok(Onejob { engine: Engine::open(Arc::new(config)).await? })
    }

    /// Runs this node until `shutdown` comes, then lets what is in flight finish for
    /// `server.shutdown_grace`, turns the rest into unknown attempts, and closes the store. Without it
    /// nothing waits in line, nothing is tried again, and on PostgreSQL the node soon counts as dead.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        self.engine.run(shutdown).await;
    }

    /// Makes the job of an intent, or finds it. The answer comes after the commit (R10); if a slot to send
    /// is free, the first attempt has started by then.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn submit(&self, request: JobRequest) -> Result<Submitted, CallError> {
        let order = request.order(self.engine.config())?;
        match self.engine.submit(order).await? {
            Ordered::Stored(submitted) => Ok(submitted),
            Ordered::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// One job.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job(&self, job: JobId) -> Result<Option<Arc<Record>>, StoreError> {
        self.engine.job(job).await
    }

    /// The job of a key.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn job_of_key(&self, owner: &str, idempotency_key: &str) -> Result<Option<Arc<Record>>, CallError> {
        let (owner, idempotency_key) = (checked_owner(owner)?, key(idempotency_key)?);
        let filter = JobFilter {
            owner: Some(owner),
            idempotency_key: Some(idempotency_key),
            task: None,
            state: None,
            before: None,
            limit: 1,
        };
        Ok(self.engine.list_jobs(filter).await?.pop())
    }

    /// Waits until the job is terminal or unknown, at most `patience`, and gives it as it is then.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn wait(&self, job: JobId, patience: Duration) -> Result<Option<Arc<Record>>, StoreError> {
        self.engine.wait(job, patience).await
    }

    /// Jobs, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn jobs(&self, filter: JobFilter) -> Result<Vec<Arc<Record>>, StoreError> {
        self.engine.list_jobs(filter).await
    }

    /// Attempts, newest first: those that wait for evidence are the unknown ones.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn attempts(&self, filter: AttemptFilter) -> Result<Vec<ListedAttempt>, StoreError> {
        self.engine.list_attempts(filter).await
    }

    /// The notices of a job, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn notices(&self, job: JobId) -> Result<Vec<StoredNotice>, StoreError> {
        self.engine.store().notices(job).await
    }

    /// Closes a job.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn cancel(&self, job: JobId) -> Result<Applied, StoreError> {
        self.engine.cancel(job).await
    }

    /// Closes the job of a key, or makes sure that a submit still on its way finds it closed.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn cancel_by_key(&self, owner: &str, idempotency_key: &str) -> Result<Applied, CallError> {
        Ok(self.engine.cancel_by_key(checked_owner(owner)?, key(idempotency_key)?).await?)
    }

    /// Opens a failed job again.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn retry(&self, job: JobId) -> Result<ByHand, StoreError> {
        match self.engine.job(job).await? {
            Some(record) => self.engine.retry(&record).await,
            None => Ok(ByHand::Not(Applied::NoSuchJob)),
        }
    }

    /// Starts an attempt by hand, at `provider` or at the task's first; R4 and R9 hold for it too, and
    /// `force` lets it go to a provider without a certificate.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn start_attempt(&self, job: JobId, provider: Option<&str>, force: bool) -> Result<ByHand, StoreError> {
        match self.engine.job(job).await? {
            Some(record) => self.engine.start_by_hand(&record, provider, force).await,
            None => Ok(ByHand::Not(Applied::NoSuchJob)),
        }
    }

    /// Says what became of an unknown attempt, and why you know.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn resolve(&self, attempt: AttemptId, word: Word, reason: &str) -> Result<Resolved, CallError> {
        let server = &self.engine.config().server;
        let reason = match outside(server, &Value::from(reason))? {
            Value::String(reason) if !reason.is_empty() => Text::from(reason),
            _ => return Err(member("reason", "a string that is not empty").into()),
        };
        let word = match word {
            Word::Succeeded(result) => Word::Succeeded(outside(server, &result)?),
            Word::Failed => Word::Failed,
            Word::Abandoned => Word::Abandoned,
        };
        match self.engine.store().job_of_attempt(attempt).await? {
            Some(record) => Ok(self.engine.resolve(&record, attempt, word, reason).await?),
            None => Ok(Resolved::Told(Applied::NoSuchJob)),
        }
    }

    /// The HTTP API of this node, to be served by the service itself, under a path of its own if it likes.
    pub fn router(&self) -> axum::Router {
        crate::api::router(self.engine.clone())
    }

    /// What lies below: counters, stages, the configuration.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// A value as it would be read from a request.
fn outside(server: &Server, value: &Value) -> Result<Value, Invalid> {
    let text = value.to_string();
    if text.len() > server.max_body_bytes {
        return Err(Invalid::TooLarge { limit: server.max_body_bytes });
    }
    Ok(json::parse(text.as_bytes(), Duplicates::Refused, json::MAX_DEPTH)?)
}

fn key(idempotency_key: &str) -> Result<Text, Invalid> {
    Ok(intent::parse_key([idempotency_key.as_bytes()])?)
}

fn checked_owner(owner: &str) -> Result<Text, Invalid> {
    door::check_owner(owner)?;
    match owner.contains('\0') {
        true => Err(member("owner", "text without U+0000")),
        false => Ok(owner.into()),
    }
}

fn moment(name: &'static str, at: Option<SystemTime>) -> Result<Option<Millis>, Invalid> {
    let Some(at) = at else { return Ok(None) };
    let ms = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => Millis::try_from(since.as_millis()).ok(),
        Err(before) => Millis::try_from(before.duration().as_millis()).ok().map(|ms| -ms),
    };
    match ms.filter(|ms| door::is_moment(*ms)) {
        Some(ms) => Ok(Some(ms)),
        None => Err(member(name, door::A_MOMENT)),
    }
}
