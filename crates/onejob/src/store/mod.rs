//! The store: where jobs live. A few coarse verbs, each one transaction; callers pass one thing and
//! the store gathers concurrent calls itself.
//!
//! A store never decides: it locks the job, asks [`onejob_core::decide`], writes the change with the
//! guards repeated in its own terms, and commits. Every answer is given after the commit (R10).
//! Time reaches a store as an argument; [`Store::now`] is the clock that it comes from.

macro_rules! on_each {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Store::Memory($store) => $call,
            Store::Sqlite($store) => $call,
            Store::Postgres($store) => $call,
        }
    };
}

mod record;
mod notice;
mod certificates;
mod row;
mod remembered;
mod lists;
mod nodes;
mod retention;
pub mod examined;
pub mod memory;
pub mod sqlite;
pub mod postgres;

use std::sync::Arc;

use onejob_core::{AttemptId, Effects, Event, Illegal, Job, JobId, Millis, NodeId, Plan, Start, Text, Verdict};

use crate::intent::Intent;

pub use certificates::{
    Begun, Certificate, CertificateFilter, Checked, Contracts, Run, Running, Suspend, Suspension, Unproved,
    Verification, VerificationId, WhyUnproved,
};
pub use lists::{AttemptFilter, JobFilter, ListedAttempt};
pub use memory::MemoryStore;
pub use nodes::{Changed, Glance, Heard, Hearing, KnownNode, Node, Renewed};
pub use notice::notice_detail;
pub use postgres::{PostgresOptions, PostgresStore};
pub use record::Hold;
pub use retention::{Prune, Pruned, Tombstone};
pub use sqlite::{OpenError, SqliteOptions, SqliteStore};

/// A store of either kind.
#[derive(Clone)]
pub enum Store {
    /// The reference: `decide` over a map. Nothing survives the process.
    Memory(Arc<MemoryStore>),
    /// One SQLite file, owned by one process.
    Sqlite(Arc<SqliteStore>),
    /// A PostgreSQL database, shared by as many processes as needed.
    Postgres(Arc<PostgresStore>),
}

/// A job as it is stored: what the rules need, and what they do not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// State, slot, attempts.
    pub job: Job,
    /// Who wants it.
    pub owner: Text,
    /// The owner's name for the intent.
    pub idempotency_key: Text,
    /// What was asked. Absent when the key was cancelled before its post arrived; the first post
    /// fills it in and finds a cancelled job.
    pub intent: Option<Intent>,
    /// The caller's own notes, a JSON object. Not part of the intent.
    pub metadata: Text,
    /// Higher is sooner, -100 to 100.
    pub priority: i32,
    /// No attempt before this moment.
    pub run_at: Option<Millis>,
    /// How often the same intent came again.
    pub duplicates: u64,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// A job to make, or to find.
#[derive(Clone, Debug)]
pub struct Submit {
    /// The id it gets if it is new.
    pub id: JobId,
    /// Who wants it.
    pub owner: Text,
    /// The owner's name for the intent.
    pub idempotency_key: Text,
    /// What is asked.
    pub intent: Intent,
    /// The caller's own notes, a JSON object.
    pub metadata: Text,
    /// Higher is sooner, -100 to 100.
    pub priority: i32,
    /// No attempt before this moment.
    pub run_at: Option<Millis>,
    /// No attempt starts after this moment.
    pub deadline: Option<Millis>,
    /// Of the task, now.
    pub effects: Effects,
    /// The first attempt's plan.
    pub plan: Plan,
    /// A slot to send is held: if the job is new, its first attempt starts in the same commit. One at another
    /// provider than the first waits in line for a claim.
    pub start: Option<Start>,
    /// Now.
    pub at: Millis,
}

/// What became of a submit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// The job is new; its first attempt is started if the submit brought a start.
    New(Arc<Record>),
    /// The same intent is known: the job as it is now, this duplicate counted.
    Same(Arc<Record>),
    /// The key names another intent (R2). A conflict notice is recorded.
    OtherIntent(Arc<Record>),
    /// The key's job was pruned: the key is past retention and never runs again (R12).
    Expired(Tombstone),
}

/// What became of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It was written, or changed nothing.
    Done {
        /// The job afterwards.
        record: Arc<Record>,
        /// What to tell whoever brought the event.
        verdict: Verdict,
    },
    /// A rule forbids it; nothing was written.
    Refused {
        /// The job as it is.
        record: Arc<Record>,
        /// Which rule.
        why: Illegal,
    },
    /// There is no such job.
    NoSuchJob,
    /// The job of that key was pruned; see [`Submitted::Expired`].
    Expired(Tombstone),
}

/// A wish for queued jobs, for which slots to send are held.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Where the attempts will go.
    pub provider: Text,
    /// One new attempt id per slot held.
    pub attempts: Vec<AttemptId>,
    /// The process that will send them.
    pub node: NodeId,
    /// What this process is configured with at this provider: a certificate of another contract is none.
    pub contracts: Arc<Contracts>,
    /// Now.
    pub at: Millis,
}

/// So many jobs that may not start are looked at in one claim: whoever claimed plans them anew first.
pub(crate) const MOST_UNPROVED: usize = 256;

/// What a claim got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claimed {
    /// Jobs with a fresh `starting` attempt each, the last of `job.attempts`; by priority, then due
    /// time, then id.
    pub records: Vec<Arc<Record>>,
    /// Jobs that are due and did not start, for the certificate that their plan stands on does not hold
    /// (R9). They stay as they are until somebody brings [`onejob_core::What::Unproved`].
    pub unproved: Vec<Unproved>,
    /// When the next job for this provider comes due; absent if there is none. In the past when
    /// more were due than slots held.
    pub next_due: Option<Millis>,
}

/// A recorded noteworthy fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredNotice {
    /// When.
    pub at: Millis,
    /// Of which job.
    pub job: JobId,
    /// About which attempt, if it is about one.
    pub attempt: Option<AttemptId>,
    /// `duplicate`, `conflict`, or what [`Notice::kind`] says.
    pub kind: Text,
    /// More of it, a JSON object; never a payload.
    pub detail: Text,
}

/// What is open now, for metrics and readiness. Counts stop at [`COUNT_CAP`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Queued jobs.
    pub queued_jobs: u64,
    /// Unknown attempts.
    pub unknown_attempts: u64,
    /// Since when the oldest unknown attempt is unknown.
    pub oldest_unknown_since: Option<Millis>,
    /// Since when the oldest due job waits.
    pub oldest_due: Option<Millis>,
}

/// Where counting stops: nobody reads a larger number, and counting millions takes seconds.
pub const COUNT_CAP: u64 = 100_000;

/// What the store has done since it was opened; for metrics and the gates in the tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Durable commits.
    pub commits: u64,
    /// Commands that those commits carried.
    pub commands: u64,
    /// Bytes written to the write-ahead log; 0 where that is a server's, which counts them itself.
    pub log_bytes: u64,
}

/// What nobody planned. Everything that happens in normal life is a value above.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or written; nothing happened. Try again with the same key.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The commit was sent and its end is not known. Try again with the same key.
    #[error("the store did not say whether it committed: {0}")]
    OutcomeUnknown(String),
    /// A stored row means no state, or a constraint refused what the rules allowed: a fault of ours
    /// or of the disk. Nothing was written.
    #[error("the store refused: {0}")]
    Refused(String),
}

/// The answer of a verb.
pub type Result<T> = std::result::Result<T, StoreError>;

impl Store {
    /// Makes the job, or finds the one that has its key (R1, R2). Insert first, never look first.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the caller may try again with the same key. After [`StoreError::OutcomeUnknown`]
    /// whoever brought a start looks for its attempt until the store answers: if it is recorded, nobody
    /// else will send it. That holds for [`Store::apply`] with a start and for [`Store::claim`] as well.
    pub async fn submit(&self, submit: Submit) -> Result<Submitted> {
        on_each!(self, store => store.submit(submit).await)
    }

    /// Counts `times` more duplicates of a job that callers on this node joined in flight.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn count_duplicates(&self, job: JobId, times: u64, at: Millis) -> Result<Option<Arc<Record>>> {
        on_each!(self, store => store.count_duplicates(job, times, at).await)
    }

    /// Applies an event to a job.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; applying the same event again is safe.
    pub async fn apply(&self, job: JobId, event: Event) -> Result<Applied> {
        on_each!(self, store => store.apply(job, event).await)
    }

    /// Cancels by key; makes a cancelled job without intent if the post has not arrived yet.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn cancel_by_key(
        &self,
        owner: Text,
        idempotency_key: Text,
        new_id: JobId,
        at: Millis,
    ) -> Result<Applied> {
        on_each!(self, store => store.cancel_by_key(owner, idempotency_key, new_id, at).await)
    }

    /// Starts the next attempts of queued jobs that are due at a provider.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn claim(&self, claim: Claim) -> Result<Claimed> {
        on_each!(self, store => store.claim(claim).await)
    }

    /// Turns open attempts of dead nodes into unknown ones, at most `limit`, and says which jobs it
    /// changed; call again until none is left. Dead is every node but `alive` that holds no lease: one
    /// whose lease has ended is declared dead first, for ever, so that what follows filters by boot id
    /// and never by time.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn reap(&self, alive: NodeId, at: Millis, limit: usize) -> Result<Vec<Arc<Record>>> {
        on_each!(self, store => store.reap(alive, at, limit).await)
    }

    /// One job.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job(&self, id: JobId) -> Result<Option<Arc<Record>>> {
        on_each!(self, store => store.job(id).await)
    }

    /// The job of an attempt.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job_of_attempt(&self, id: AttemptId) -> Result<Option<Arc<Record>>> {
        on_each!(self, store => store.job_of_attempt(id).await)
    }

    /// Lists jobs, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<Arc<Record>>> {
        on_each!(self, store => store.list_jobs(filter).await)
    }

    /// Lists attempts, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_attempts(&self, filter: AttemptFilter) -> Result<Vec<ListedAttempt>> {
        on_each!(self, store => store.list_attempts(filter).await)
    }

    /// Unknown attempts of a task, the longest unknown first, at most `limit`: for the policy that
    /// gives them up.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn unknown_longest(&self, task: Text, limit: usize) -> Result<Vec<ListedAttempt>> {
        on_each!(self, store => store.unknown_longest(task, limit).await)
    }

    /// Queued jobs that have a deadline, the earliest deadline first, at most `limit`, as
    /// `(job, deadline)`.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn queued_deadlines(&self, limit: usize) -> Result<Vec<(JobId, Millis)>> {
        on_each!(self, store => store.queued_deadlines(limit).await)
    }

    /// The providers that queued jobs wait for.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn awaited_providers(&self) -> Result<Vec<Text>> {
        on_each!(self, store => store.awaited_providers().await)
    }

    /// The notices of a job, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn notices(&self, job: JobId) -> Result<Vec<StoredNotice>> {
        on_each!(self, store => store.notices(job).await)
    }

    /// What is open now.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn census(&self) -> Result<Census> {
        on_each!(self, store => store.census().await)
    }

    /// Whether it can be written right now; writes nothing that lasts.
    ///
    /// # Errors
    ///
    /// [`StoreError`] says why not.
    pub async fn ping(&self) -> Result<()> {
        on_each!(self, store => store.ping().await)
    }

    /// What it has done since it was opened.
    pub fn work(&self) -> Work {
        on_each!(self, store => store.work())
    }

    /// Finishes what was taken on and closes. Calls after this are [`StoreError::Unavailable`].
    pub async fn close(&self) {
        on_each!(self, store => store.close().await)
    }
}
