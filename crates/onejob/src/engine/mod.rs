//! The engine: takes intents, starts attempts when there is room, watches their deadlines, and
//! brings whatever becomes of them to the store. It decides nothing about states; it tells the
//! store what happened.
//!
//! Reading order: this file (what the API calls), `submit`, `dispatch`, `attempt`, `proof` (who may take
//! over), `circuit`, `hedge`, `reconcile`, `operator`, `member`.

mod clock;
mod circuit;
mod lane;
mod wake;
pub mod metrics;
pub(crate) mod door;
mod submit;
mod within;
mod dispatch;
mod attempt;
mod proof;
mod hedge;
mod reconcile;
mod operator;
mod member;
mod verify;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use onejob_core::{AttemptId, Event, JobId, Millis, Next, Payload, Text, Verdict, What};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use crate::config::{Config, StoreLocation, Task};
use crate::id;
use crate::provider::Provider;
use crate::store::{
    Applied, AttemptFilter, JobFilter, ListedAttempt, MemoryStore, PostgresOptions, PostgresStore, Record,
    SqliteOptions, SqliteStore, Store, StoreError,
};

use lane::{Lane, Lanes, Slot};
use member::Member;
use metrics::Metrics;
use proof::Proofs;
use wake::Changes;

pub use door::Invalid;
pub use operator::{ByHand, Resolved, Word};
pub use submit::{Order, Ordered, Refusal};
pub use verify::{AskedBy, Standing, Verified};
pub use within::{SubmitInError, Uncommitted};

/// A running engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// How far the engine is on its way to the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Takes work.
    Serving,
    /// Starts nothing new; what is in flight may finish.
    Draining,
    /// What is still in flight becomes unknown, now.
    Stopping,
}

pub(crate) struct Inner {
    config: Arc<Config>,
    store: Store,
    member: Member,
    proofs: Proofs,
    lanes: Arc<Lanes>,
    changes: Arc<Changes>,
    metrics: Metrics,
    joins: submit::Joins,
    verifying: verify::Verifying,
    stage: watch::Sender<Stage>,
    /// Something that a sweep waits for may have come nearer: a deadline, an unknown attempt.
    sweep: Notify,
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store cannot be opened.
    #[error("{0}")]
    Store(String),
    /// A provider cannot be made ready.
    #[error("provider {name}: {message}")]
    Provider {
        /// Which.
        name: Text,
        /// Why.
        message: String,
    },
}

/// Open attempts of dead nodes that are turned into unknown ones in one commit.
const REAP_BATCH: usize = 500;

impl Engine {
    /// Opens the store and the providers, and turns what a dead predecessor left open into unknown
    /// attempts. Nothing starts until [`Engine::run`].
    ///
    /// # Errors
    ///
    /// [`OpenError`], a sentence for people.
    pub async fn open(config: Arc<Config>) -> Result<Engine, OpenError> {
        let lanes = config
            .providers
            .values()
            .map(|provider| match Provider::open(provider) {
                Ok(open) => Ok(Lane::new(provider.name.clone(), open, provider.concurrency)),
                Err(message) => Err(OpenError::Provider { name: provider.name.clone(), message }),
            })
            .collect::<Result<Vec<Lane>, OpenError>>()?;
        let store = open_store(&config).await?;
        let engine = Engine {
            inner: Arc::new(Inner {
                lanes: Arc::new(Lanes::new(lanes, config.server.max_in_flight)),
                member: Member::new(&store),
                proofs: Proofs::of(&config),
                store,
                changes: Arc::default(),
                metrics: Metrics::new(),
                joins: submit::Joins::default(),
                verifying: verify::Verifying::default(),
                stage: watch::channel(Stage::Serving).0,
                sweep: Notify::new(),
                config,
            }),
        };
        engine.inner.member.enter(&engine.inner.store).await.map_err(|error| OpenError::Store(error.to_string()))?;
        engine.inner.reap().await.map_err(|error| OpenError::Store(error.to_string()))?;
        engine.inner.warn_of_orphans().await.map_err(|error| OpenError::Store(error.to_string()))?;
        Ok(engine)
    }

    /// Runs the loops until `shutdown` comes, then drains: starts nothing new, lets what is in
    /// flight finish for the configured time, turns the rest into unknown attempts, and closes the
    /// store. Nothing of the engine outlives this call.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        let inner = &self.inner;
        let mut loops = tokio::task::JoinSet::new();
        for lane in inner.lanes.iter() {
            loops.spawn(dispatch::run(inner.clone(), lane.clone()));
        }
        loops.spawn(reconcile::expire_jobs(inner.clone()));
        loops.spawn(reconcile::give_up_unknowns(inner.clone()));
        loops.spawn(reconcile::prune_finished(inner.clone()));
        loops.spawn(proof::keep_fresh(inner.clone()));
        loops.spawn(member::keep_lease(inner.clone()));
        loops.spawn(member::reap_the_dead(inner.clone()));
        loops.spawn(member::follow_others(inner.clone()));
        loops.spawn(verify::keep_verified(self.clone()));
        shutdown.await;
        inner.stage.send_replace(Stage::Draining);
        info!(in_flight = inner.lanes.in_flight(), "stopping: what is in flight may finish");
        let grace = inner.config.server.shutdown_grace;
        if tokio::time::timeout(grace, inner.lanes.idle()).await.is_err() {
            warn!(in_flight = inner.lanes.in_flight(), "stopping: the rest becomes unknown");
        }
        inner.stage.send_replace(Stage::Stopping);
        inner.lanes.idle().await;
        while let Some(ended) = loops.join_next().await {
            if let Err(panic) = ended {
                error!(%panic, "a loop of the engine ended badly");
            }
        }
        inner.verifying.idle().await;
        inner.store.close().await;
    }

    /// How far it is on its way to the end.
    pub fn stage(&self) -> Stage {
        *self.inner.stage.borrow()
    }

    /// The configuration it runs on.
    pub fn config(&self) -> &Arc<Config> {
        &self.inner.config
    }

    /// The store it writes to: for reading.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Its counters.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Calls open at providers now, those past their deadline among them.
    pub fn in_flight(&self) -> usize {
        self.inner.lanes.in_flight()
    }

    /// A provider by name.
    pub fn provider(&self, name: &str) -> Option<&Provider> {
        self.inner.lanes.get(name).map(|lane| &lane.provider)
    }

    /// One job.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job(&self, job: JobId) -> Result<Option<Arc<Record>>, StoreError> {
        self.inner.store.job(job).await
    }

    /// Jobs, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<Arc<Record>>, StoreError> {
        self.inner.store.list_jobs(filter).await
    }

    /// Attempts, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_attempts(&self, filter: AttemptFilter) -> Result<Vec<ListedAttempt>, StoreError> {
        self.inner.store.list_attempts(filter).await
    }

    /// Waits until the job is terminal or unknown, at most `patience`, and gives it as it is then.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn wait(&self, job: JobId, patience: Duration) -> Result<Option<Arc<Record>>, StoreError> {
        let end = tokio::time::Instant::now() + patience;
        let mut interest = self.inner.changes.watch(job);
        let mut stage = self.inner.stage.subscribe();
        let Some(mut latest) = self.inner.store.job(job).await? else { return Ok(None) };
        interest.saw(&latest);
        while !wake::ends_a_wait(&latest) {
            tokio::select! {
                news = interest.changed() => match news {
                    Some(record) => latest = record,
                    None => break,
                },
                // A node that stops answers its waiting callers with the present.
                _ = stage.wait_for(|stage| *stage == Stage::Stopping) => break,
                () = tokio::time::sleep_until(end) => break,
            }
        }
        Ok(Some(latest))
    }

    /// Closes a job.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn cancel(&self, job: JobId) -> Result<Applied, StoreError> {
        self.tell(job, None, What::Cancel).await
    }

    /// Closes the job of a key, or makes sure that a post still on its way finds it closed.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn cancel_by_key(&self, owner: Text, idempotency_key: Text) -> Result<Applied, StoreError> {
        let inner = self.inner.clone();
        detached(async move {
            let applied = inner.store.cancel_by_key(owner, idempotency_key, id::new_job_id(), inner.now()).await?;
            inner.observe(&applied);
            Ok(applied)
        })
        .await
    }

    /// Brings an event to the store, even if the caller goes away meanwhile.
    async fn tell(&self, job: JobId, about: Option<AttemptId>, what: What) -> Result<Applied, StoreError> {
        let inner = self.inner.clone();
        detached(async move {
            let event = Event { at: inner.now(), what };
            let applied = inner.store.apply(job, event.clone()).await?;
            inner.observe(&applied);
            inner.told(about, &event.what, &applied);
            Ok(applied)
        })
        .await
    }
}

impl Inner {
    fn task_of(&self, record: &Record) -> Option<&Arc<Task>> {
        record.intent.as_ref().and_then(|intent| self.config.tasks.get(&intent.task))
    }

    /// The clock that decides: the store's.
    fn now(&self) -> Millis {
        self.store.now()
    }

    /// When to look again if something is due at `due`.
    fn nap(&self, due: Option<Millis>) -> tokio::time::Instant {
        clock::nap(due, self.now())
    }

    fn draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    /// A slot at `lane`, unless none is free or the engine stops. Taken first and asked after: either a
    /// stop is seen here, or the stop sees the slot and waits for it.
    fn slot(&self, lane: &Lane) -> Option<Slot> {
        // Asked first: a slot that is taken and given back wakes whoever waits for one, without end.
        if !self.member.may_start() {
            return None;
        }
        self.lanes.try_slot(lane).filter(|_| !self.draining())
    }

    /// A slot at `lane`, unless a job that waits there would miss it: nobody overtakes those who wait. Looked at
    /// before, since a slot that is given back wakes the dispatcher; and after, since others take them too.
    fn slot_in_line(&self, lane: &Lane) -> Option<Slot> {
        let slot = if self.lanes.has_room(lane, 1) { self.slot(lane) } else { None };
        slot.filter(|_| self.lanes.has_room(lane, 0))
    }

    /// After every write: tells who waits, counts, and wakes the lanes that have new work.
    fn observe(&self, applied: &Applied) {
        match applied {
            Applied::Done { record, verdict } => {
                self.metrics.verdict(record.job.state(), verdict);
                self.changes.publish(record);
                self.expect(record);
                match verdict {
                    Verdict::Unknown => self.sweep.notify_waiters(),
                    Verdict::Ended(Next::Retry(_)) | Verdict::Replanned(Next::Retry(_)) | Verdict::Reopened
                        if record.job.deadline.is_some() =>
                    {
                        self.sweep.notify_waiters();
                    }
                    Verdict::Started
                    | Verdict::Recorded
                    | Verdict::AlreadySo
                    | Verdict::Won
                    | Verdict::AlreadyWon
                    | Verdict::Superseded { .. }
                    | Verdict::Ended(_)
                    | Verdict::Replanned(_)
                    | Verdict::EndedAfterClose
                    | Verdict::TooLate(_)
                    | Verdict::Cancelled
                    | Verdict::Reopened
                    | Verdict::Expired => {}
                }
            }
            Applied::Refused { .. } | Applied::NoSuchJob | Applied::Expired(_) => {}
        }
    }

    /// Counts and logs what a person asked for.
    fn told(&self, about: Option<AttemptId>, what: &What, applied: &Applied) {
        let Applied::Done { record, verdict } = applied else { return };
        let attempt = about.and_then(|attempt| record.job.attempt(attempt));
        let outcome = metrics::outcome(what, verdict);
        if let (Some(attempt), Some(outcome)) = (attempt, &outcome) {
            self.metrics.attempt(&attempt.provider, outcome.clone());
        }
        let (job, attempt) = (id::job_text(record.job.id), attempt.map(|attempt| id::attempt_text(attempt.id)));
        let state = record.job.state().as_str();
        info!(%job, attempt, owner = %record.owner, state, outcome, "a caller's or an operator's word was taken");
    }

    /// If the job is queued, its provider's dispatcher must come in time.
    fn expect(&self, record: &Record) {
        let onejob_core::Slot::Open { plan: Some(plan) } = &record.job.slot else { return };
        if let Some(lane) = self.lanes.get(&plan.provider) {
            lane.expect(plan.due_at, self.now());
        }
    }

    /// Open attempts of dead nodes; on a store that one process owns, of every other boot than ours.
    async fn reap(&self) -> Result<(), StoreError> {
        loop {
            let reaped = self.store.reap(self.member.node(), self.now(), REAP_BATCH).await?;
            for record in &reaped {
                let job = id::job_text(record.job.id);
                for attempt in record.job.attempts.iter().filter(|attempt| attempt.state.is_open()) {
                    let (attempt, provider) = (id::attempt_text(attempt.id), &attempt.provider);
                    warn!(%job, %attempt, owner = %record.owner, %provider, "a dead node left the attempt open: it is unknown now");
                }
                self.changes.publish(record);
            }
            if reaped.is_empty() {
                return Ok(());
            }
        }
    }

    async fn warn_of_orphans(&self) -> Result<(), StoreError> {
        let orphaned = |awaited: Vec<Text>| awaited.into_iter().filter(|provider| self.lanes.get(provider).is_none());
        if self.member.is_alone() {
            for provider in orphaned(self.store.awaited_providers().await?) {
                self.replan_all_at(&provider).await?;
            }
        }
        for provider in orphaned(self.store.awaited_providers().await?) {
            warn!(%provider, "jobs are queued for a provider that is not configured: they wait until it is again");
        }
        Ok(())
    }
}

/// A result with its digest.
fn payload(result: &Value) -> Payload {
    let text = result.to_string();
    Payload { digest: crate::intent::digest(text.as_bytes()), text: text.into() }
}

/// Runs `work` to its end even if the caller's future is dropped (a client that hangs up): what was
/// begun in the store must be followed by what belongs to it.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    // A large future that is moved once.
    match tokio::spawn(Box::pin(work)).await {
        Ok(result) => result,
        Err(panic) => {
            error!(%panic, "a task of the engine ended badly");
            Err(StoreError::OutcomeUnknown("an internal fault; it is in the log".into()))
        }
    }
}

async fn open_store(config: &Config) -> Result<Store, OpenError> {
    match &config.server.store {
        StoreLocation::Memory => Ok(Store::Memory(Arc::new(MemoryStore::new()))),
        StoreLocation::Sqlite(path) => {
            let options = SqliteOptions { cache_bytes: config.server.sqlite_cache_bytes, ..SqliteOptions::default() };
            match SqliteStore::open(path, options) {
                Ok(store) => Ok(Store::Sqlite(Arc::new(store))),
                Err(error) => Err(OpenError::Store(error.to_string())),
            }
        }
        StoreLocation::Postgres(url) => {
            let options = PostgresOptions::parse(url.reveal()).map_err(OpenError::Store)?;
            match PostgresStore::open(options).await {
                Ok(store) => Ok(Store::Postgres(Arc::new(store))),
                Err(error) => Err(OpenError::Store(error.to_string())),
            }
        }
    }
}

/// When something happened, for callers outside.
pub fn now() -> Millis {
    clock::now()
}
