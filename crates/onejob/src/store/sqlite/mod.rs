//! The embedded store: one SQLite file, owned by one process; one thread writes, a few read.

pub mod bare;
mod columns;
mod certificates;
mod fault;
mod examine;
mod open;
mod read;
mod sql;
#[cfg(test)]
mod tests;
mod transaction;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use onejob_core::{AttemptId, Event, JobId, Millis, NodeId, Text};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use self::fault::Fault;
use self::transaction::Transaction;
use self::writer::{Counters, Message, Pending, Writer};
use super::remembered::Remembered;
use super::{
    Applied, AttemptFilter, Census, Claim, Claimed, Glance, JobFilter, ListedAttempt, Prune, Pruned, Record, Result,
    StoreError, StoredNotice, Submit, Submitted, Work,
};

pub use examine::examine;
pub use open::{OpenError, SqliteOptions};

/// How many commands may wait for the writer before callers do: a few of its largest batches.
const QUEUE: usize = 4_096;

/// Threads that read. Reads are short, and each core that reads is one that does not write.
const READERS: usize = 2;

type Question = Box<dyn FnOnce(&Connection) + Send>;

/// Jobs in one SQLite file.
pub struct SqliteStore {
    commands: mpsc::Sender<Message>,
    questions: Mutex<Option<flume::Sender<Question>>>,
    counters: Arc<Counters>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens or makes the file, takes its lock, migrates it.
    ///
    /// # Errors
    ///
    /// A sentence for people, with what to do.
    pub fn open(path: &Path, options: SqliteOptions) -> std::result::Result<SqliteStore, OpenError> {
        let file = open::only_name(path)?;
        let lock = open::lock(&file)?;
        let connection = open::writer(&file, &options)?;
        let counters = Arc::new(Counters::default());
        let remembered = Remembered::new(options.remembered_bytes);
        let sqlite = |source| OpenError::Sqlite { file: file.clone(), source };
        let writer = Writer::new(connection, remembered, &options, counters.clone()).map_err(sqlite)?;
        let (questions, asked) = flume::unbounded::<Question>();
        let mut threads = Vec::new();
        for _ in 0..READERS {
            let (connection, asked) = (open::reader(&file, &options)?, asked.clone());
            threads.push(spawn(&file, "onejob-read", move || answer_questions(&connection, &asked))?);
        }
        let (commands, queue) = mpsc::channel(QUEUE);
        threads.push(spawn(&file, "onejob-write", move || {
            writer.run(queue);
            drop(lock);
        })?);
        Ok(SqliteStore { commands, questions: Mutex::new(Some(questions)), counters, threads: Mutex::new(threads) })
    }

    /// See [`super::Store::submit`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn submit(&self, submit: Submit) -> Result<Submitted> {
        self.write(move |transaction| transaction.submit(&submit)).await
    }

    /// See [`super::Store::count_duplicates`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn count_duplicates(&self, job: JobId, times: u64, at: Millis) -> Result<Option<Arc<Record>>> {
        self.write(move |transaction| transaction.count_duplicates(job, times, at)).await
    }

    /// See [`super::Store::apply`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn apply(&self, job: JobId, event: Event) -> Result<Applied> {
        self.write(move |transaction| transaction.apply(job, &event)).await
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
        self.write(move |transaction| transaction.cancel_by_key(&owner, &idempotency_key, new_id, at)).await
    }

    /// See [`super::Store::claim`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.write(move |transaction| transaction.claim(&claim)).await
    }

    /// See [`super::Store::reap`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn reap(&self, alive: NodeId, at: Millis, limit: usize) -> Result<Vec<Arc<Record>>> {
        self.write(move |transaction| transaction.reap(alive, at, limit)).await
    }

    /// See [`super::Store::prune`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn prune(&self, prune: Prune) -> Result<Pruned> {
        self.write(move |transaction| transaction.prune(&prune)).await
    }

    /// See [`super::Store::jobs_unlike`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn jobs_unlike(&self, seen: Vec<Glance>) -> Result<Vec<Arc<Record>>> {
        self.read(move |connection| read::jobs_unlike(connection, &seen)).await
    }

    /// See [`super::Store::job`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job(&self, id: JobId) -> Result<Option<Arc<Record>>> {
        self.read(move |connection| read::job(connection, id)).await
    }

    /// See [`super::Store::job_of_attempt`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job_of_attempt(&self, id: AttemptId) -> Result<Option<Arc<Record>>> {
        self.read(move |connection| read::job_of_attempt(connection, id)).await
    }

    /// See [`super::Store::list_jobs`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<Arc<Record>>> {
        self.read(move |connection| read::list_jobs(connection, &filter)).await
    }

    /// See [`super::Store::list_attempts`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_attempts(&self, filter: AttemptFilter) -> Result<Vec<ListedAttempt>> {
        self.read(move |connection| read::list_attempts(connection, &filter)).await
    }

    /// See [`super::Store::unknown_longest`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn unknown_longest(&self, task: Text, limit: usize) -> Result<Vec<ListedAttempt>> {
        self.read(move |connection| read::unknown_longest(connection, &task, limit)).await
    }

    /// See [`super::Store::queued_deadlines`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn queued_deadlines(&self, limit: usize) -> Result<Vec<(JobId, Millis)>> {
        self.read(move |connection| read::queued_deadlines(connection, limit)).await
    }

    /// See [`super::Store::awaited_providers`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn awaited_providers(&self) -> Result<Vec<Text>> {
        self.read(read::awaited_providers).await
    }

    /// See [`super::Store::notices`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn notices(&self, job: JobId) -> Result<Vec<StoredNotice>> {
        self.read(move |connection| read::notices(connection, job)).await
    }

    /// See [`super::Store::census`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn census(&self) -> Result<Census> {
        self.read(read::census).await
    }

    /// See [`super::Store::ping`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn ping(&self) -> Result<()> {
        self.write(|transaction| transaction.ping()).await
    }

    /// See [`super::Store::work`].
    pub fn work(&self) -> Work {
        self.counters.work()
    }

    /// See [`super::Store::close`].
    pub async fn close(&self) {
        // Readers end when their queue does, and before the writer, which then closes last and
        // leaves no log behind.
        drop(self.questions.lock().unwrap_or_else(PoisonError::into_inner).take());
        let (reply, closed) = oneshot::channel();
        if self.commands.send(Message::Close(reply)).await.is_ok() {
            let _ = closed.await;
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join()))).await;
    }

    async fn write<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> std::result::Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let command = Message::Do(Box::new(Pending::new(run, reply)));
        self.commands.send(command).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn read<T, F>(&self, ask: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> std::result::Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let question: Question = Box::new(move |connection| {
            let _ = reply.send(in_one_snapshot(connection, ask));
        });
        let questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        questions.ok_or_else(closed)?.send(question).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl Drop for SqliteStore {
    /// Finishes what was taken on and lets go of the file, so that it can be opened again at once.
    fn drop(&mut self) {
        drop(self.questions.lock().unwrap_or_else(PoisonError::into_inner).take());
        let (commands, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.commands, commands));
        for thread in std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner)) {
            let _ = thread.join();
        }
    }
}

fn spawn(
    file: &Path,
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::result::Result<JoinHandle<()>, OpenError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|source| OpenError::Io { file: file.to_owned(), source })
}

fn answer_questions(connection: &Connection, asked: &flume::Receiver<Question>) {
    while let Ok(question) = asked.recv() {
        question(connection);
    }
}

/// A job and its attempts are read by two statements, and the writer does not wait for readers.
fn in_one_snapshot<T>(
    connection: &Connection,
    ask: impl FnOnce(&Connection) -> std::result::Result<T, Fault>,
) -> Result<T> {
    let execute = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    execute("BEGIN").map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let answer = ask(connection);
    if let Err(error) = execute("COMMIT") {
        tracing::warn!(error = %error, "a read did not end well");
        if !connection.is_autocommit() {
            let _ = execute("ROLLBACK");
        }
    }
    answer.map_err(|fault| match fault {
        Fault::Refused(why) => StoreError::Refused(why),
        Fault::Broken(why) => StoreError::Unavailable(why),
    })
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}
