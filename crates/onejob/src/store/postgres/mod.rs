//! The store of many nodes: a PostgreSQL database (13 and newer), and no state in the processes that
//! could not be lost.
//!
//! Reading order: this file, `sql` and the statements, `submit` (new jobs), `apply` (commands to jobs),
//! `write` (how a decision becomes rows), `claim`, `nodes`; `link` is one connection, `fault` what can go
//! wrong on it, `resolve` what is done when a commit gave no answer.

mod options;
mod tls;
mod fault;
mod sql;
mod link;
mod columns;
mod schema;
mod examine;
mod lane;
mod warm;
mod decided;
mod write;
mod resolve;
mod submit;
mod command;
mod wave;
mod apply;
mod claim;
mod within;
mod prune;
mod certificates;
mod nodes;
mod clock;
mod hints;
mod read;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onejob_core::{AttemptId, Event, JobId, Millis, NodeId, Text};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;

use self::clock::Clock;
use self::columns::Known;
use self::command::Command;
use self::hints::Hints;
use self::lane::Waiting;
use self::link::{Links, Purpose};
use self::submit::Order;
use super::remembered::{Remember, Remembered};
use super::{
    Applied, AttemptFilter, Census, Claim, Claimed, Glance, Hearing, JobFilter, ListedAttempt, Prune, Pruned, Record,
    Result, StoreError, StoredNotice, Submit, Submitted, Work,
};

pub use examine::examine;
pub use options::{DueBy, PostgresOptions};
pub use tokio_postgres::Transaction;
pub use within::WithinError;

pub use schema::{MIGRATIONS, Migration, OpenError, known_version, migrate, pending};

/// Every statement as `(file, text)`, for those who look at plans.
pub fn statements() -> impl Iterator<Item = (&'static str, &'static str)> {
    sql::ALL.iter().map(|statement| (statement.file, statement.text))
}

/// What the store tells each of its connections about plans and durability, as `(name, value)`.
pub fn settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    link::SETTINGS.iter().copied()
}

/// Connections for claims, reaping, pruning, and for finding out about lost commits.
const WORKERS: usize = 3;

/// Connections that read.
const READERS: usize = 4;

/// Between two looks at the database's clock, where no lease is renewed.
const CLOCK: Duration = Duration::from_secs(10);

/// Jobs in a PostgreSQL database.
pub struct PostgresStore {
    shared: Arc<Shared>,
    queues: Mutex<Option<Queues>>,
    lanes: Mutex<Vec<JoinHandle<()>>>,
    background: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Clone)]
struct Queues {
    orders: flume::Sender<Order>,
    commands: flume::Sender<Command>,
}

/// What the verbs and the lanes of one store share.
struct Shared {
    options: PostgresOptions,
    lanes: Links,
    alone: Links,
    work: Links,
    reads: Links,
    lease: Links,
    remembered: Mutex<Remembered<Known>>,
    counters: Counters,
    clock: Clock,
    hints: Hints,
    node: Mutex<Option<NodeId>>,
    waiting: Waiting,
    identity: OnceCell<i64>,
}

impl PostgresStore {
    /// Connects, refuses a schema that is not the one this build knows, and begins to listen.
    ///
    /// # Errors
    ///
    /// A sentence for people, with what to do.
    pub async fn open(options: PostgresOptions) -> std::result::Result<PostgresStore, OpenError> {
        schema::check(&options).await?;
        let links = |purpose, most| Links::new(&options, purpose, most).map_err(OpenError::Unreachable);
        let shared = Arc::new(Shared {
            lanes: links(Purpose::Lane, options.lanes.0 + options.lanes.1)?,
            alone: links(Purpose::Alone, lane::ALONE)?,
            work: links(Purpose::Write, WORKERS)?,
            reads: links(Purpose::Read, READERS)?,
            lease: links(Purpose::Lease, 1)?,
            remembered: Mutex::new(Remembered::new(options.remembered_bytes)),
            counters: Counters::default(),
            clock: Clock::default(),
            hints: Hints::new(options.notify),
            node: Mutex::default(),
            waiting: Waiting::new(),
            identity: OnceCell::new(),
            options,
        });
        look_at_the_clock(&shared)
            .await
            .map_err(|fault| OpenError::Unreachable(StoreError::from(fault).to_string()))?;
        let (orders, ordered) = flume::bounded(lane::QUEUE);
        let (commands, commanded) = flume::bounded(lane::QUEUE);
        let mut lanes = Vec::new();
        for _ in 0..shared.options.lanes.0 {
            let (shared, onward, queue) = (shared.clone(), commands.clone(), ordered.clone());
            lanes.push(tokio::spawn(async move {
                while let Some(batch) = lane::next_batch(&queue).await {
                    submit::insert(&shared, &onward, batch).await;
                }
            }));
        }
        for _ in 0..shared.options.lanes.1 {
            let (shared, queue) = (shared.clone(), commanded.clone());
            lanes.push(tokio::spawn(async move {
                while let Some(batch) = lane::next_batch(&queue).await {
                    apply::work(&shared, batch).await;
                }
            }));
        }
        let mut background = vec![tokio::spawn(follow_the_clock(shared.clone()))];
        if !shared.options.pooled {
            background.push(tokio::spawn(warm::warm(shared.clone())));
        }
        if shared.options.notify {
            background.push(tokio::spawn(hints::run(shared.clone())));
        }
        Ok(PostgresStore {
            shared,
            queues: Mutex::new(Some(Queues { orders, commands })),
            lanes: Mutex::new(lanes),
            background: Mutex::new(background),
        })
    }

    /// See [`super::Store::submit`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn submit(&self, submit: Submit) -> Result<Submitted> {
        self.order(|reply| Order::Submit(Box::new(submit), reply)).await
    }

    /// See [`super::Store::count_duplicates`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn count_duplicates(&self, job: JobId, times: u64, at: Millis) -> Result<Option<Arc<Record>>> {
        self.send(|reply| Command::Count { job, times, at, reply }).await
    }

    /// See [`super::Store::apply`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn apply(&self, job: JobId, event: Event) -> Result<Applied> {
        self.send(|reply| Command::Apply { job, event: Box::new(event), reply }).await
    }

    /// See [`super::Store::cancel_by_key`].
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
        self.order(|reply| Order::Cancel { owner, idempotency_key, new_id, at, reply }).await
    }

    /// See [`super::Store::claim`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.open_queues()?;
        let shared = self.shared.clone();
        finished(tokio::spawn(async move { claim::claim(&shared, &claim).await })).await
    }

    /// See [`super::Store::prune`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn prune(&self, prune: Prune) -> Result<Pruned> {
        prune::prune(&self.shared, &prune).await
    }

    /// See [`super::Store::jobs_unlike`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn jobs_unlike(&self, seen: Vec<Glance>) -> Result<Vec<Arc<Record>>> {
        Ok(read::jobs_unlike(&self.shared.reads, &seen).await?)
    }

    /// See [`super::Store::job`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job(&self, id: JobId) -> Result<Option<Arc<Record>>> {
        Ok(read::job(&self.shared.reads, id).await?)
    }

    /// See [`super::Store::job_of_attempt`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job_of_attempt(&self, id: AttemptId) -> Result<Option<Arc<Record>>> {
        Ok(read::job_of_attempt(&self.shared.reads, id).await?)
    }

    /// See [`super::Store::list_jobs`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<Arc<Record>>> {
        Ok(read::list_jobs(&self.shared.reads, &filter).await?)
    }

    /// See [`super::Store::list_attempts`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_attempts(&self, filter: AttemptFilter) -> Result<Vec<ListedAttempt>> {
        Ok(read::list_attempts(&self.shared.reads, &filter).await?)
    }

    /// See [`super::Store::unknown_longest`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn unknown_longest(&self, task: Text, limit: usize) -> Result<Vec<ListedAttempt>> {
        Ok(read::unknown_longest(&self.shared.reads, &task, limit).await?)
    }

    /// See [`super::Store::queued_deadlines`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn queued_deadlines(&self, limit: usize) -> Result<Vec<(JobId, Millis)>> {
        Ok(read::queued_deadlines(&self.shared.reads, limit).await?)
    }

    /// See [`super::Store::awaited_providers`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn awaited_providers(&self) -> Result<Vec<Text>> {
        Ok(read::awaited_providers(&self.shared.reads).await?)
    }

    /// See [`super::Store::notices`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn notices(&self, job: JobId) -> Result<Vec<StoredNotice>> {
        Ok(read::notices(&self.shared.reads, job).await?)
    }

    /// See [`super::Store::census`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn census(&self) -> Result<Census> {
        Ok(read::census(&self.shared.reads).await?)
    }

    /// See [`super::Store::ping`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn ping(&self) -> Result<()> {
        Ok(read::ping(&self.shared.reads).await?)
    }

    /// See [`super::Store::hear`].
    pub fn hear(&self) -> Hearing {
        match self.shared.options.notify {
            true => Hearing::of(self.shared.hints.heard.subscribe()),
            false => Hearing::silence(),
        }
    }

    /// See [`super::Store::work`].
    pub fn work(&self) -> Work {
        self.shared.counters.work()
    }

    /// See [`super::Store::close`].
    pub async fn close(&self) {
        drop(lock(&self.queues).take());
        // The lanes end when their queues do, and finish what is in them.
        let lanes = std::mem::take(&mut *lock(&self.lanes));
        futures_util::future::join_all(lanes).await;
        let background = std::mem::take(&mut *lock(&self.background));
        for task in background {
            task.abort();
            let _ = task.await;
        }
        let shared = &self.shared;
        [&shared.lanes, &shared.alone, &shared.work, &shared.reads, &shared.lease].into_iter().for_each(Links::close);
    }

    async fn order<T>(&self, order: impl FnOnce(oneshot::Sender<Result<T>>) -> Order) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.open_queues()?.orders.send_async(order(reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn send<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.open_queues()?.commands.send_async(command(reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    fn open_queues(&self) -> Result<Queues> {
        lock(&self.queues).clone().ok_or_else(closed)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // The lanes finish what they took on by themselves.
        for task in std::mem::take(&mut *lock(&self.background)) {
            task.abort();
        }
    }
}

impl Shared {
    /// The node that entered through this store.
    fn node(&self) -> Option<NodeId> {
        *lock(&self.node)
    }

    fn set_node(&self, node: NodeId) {
        *lock(&self.node) = Some(node);
    }

    fn remember(&self, all: impl IntoIterator<Item = Known>) {
        let mut remembered = lock(&self.remembered);
        for known in all {
            remembered.put(&known);
        }
    }

    fn recall<'a>(&self, jobs: impl Iterator<Item = &'a JobId>) -> Vec<Known> {
        let remembered = lock(&self.remembered);
        jobs.filter_map(|job| remembered.get(*job)).cloned().collect()
    }

    fn forget(&self, jobs: &[JobId]) {
        let mut remembered = lock(&self.remembered);
        for job in jobs {
            remembered.forget(*job);
        }
    }

    fn tell(&self, records: &[Arc<Record>]) {
        self.hints.tell(records);
    }
}

impl Remember for Known {
    fn record(&self) -> &Arc<Record> {
        &self.record
    }
}

/// What was done since the store was opened.
#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    commands: AtomicU64,
}

impl Counters {
    fn commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    fn commands(&self, count: usize) {
        self.commands.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The log is the server's: its own views count the bytes.
    fn work(&self) -> Work {
        Work {
            commits: self.commits.load(Ordering::Relaxed),
            commands: self.commands.load(Ordering::Relaxed),
            log_bytes: 0,
        }
    }
}

async fn look_at_the_clock(shared: &Shared) -> std::result::Result<(), fault::Fault> {
    let asked = Instant::now();
    let rows = shared.lease.ask(&sql::CLOCK, Vec::new()).await?;
    if let Some(row) = rows.first() {
        shared.clock.heard(asked, columns::at(row, 0)?);
    }
    Ok(())
}

async fn follow_the_clock(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(CLOCK).await;
        if let Err(fault) = look_at_the_clock(&shared).await {
            tracing::debug!(?fault, "the database's clock could not be asked");
        }
    }
}

/// The end of work that goes on though the caller is gone.
async fn finished<T>(work: JoinHandle<Result<T>>) -> Result<T> {
    match work.await {
        Ok(end) => end,
        Err(panic) => {
            tracing::error!(%panic, "a task of the store ended badly");
            Err(StoreError::OutcomeUnknown("an internal fault; it is in the log".into()))
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
