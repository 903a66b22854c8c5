//! The one thread that writes: it drains its queue and commits what it finds in one transaction.
//!
//! A batch is what arrived while the last one was on its way to the disk; nobody waits for more to
//! come. Answers are sent after the commit (R10).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tokio::sync::{mpsc, oneshot};

use super::fault::Fault;
use super::open::SqliteOptions;
use super::transaction::Transaction;
use crate::store::record::Hold;
use crate::store::remembered::Remembered;
use crate::store::{Record, Result, StoreError, Work};

/// The most commands in one transaction: beyond this the fsync costs little per command, and the
/// first of them has waited long enough.
const LARGEST_BATCH: usize = 512;

/// Something for the writer to do.
pub(super) trait Command: Send {
    /// Does it; may be called again after the transaction was rolled back.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> std::result::Result<(), Fault>;
    /// Answers whoever asked, after the transaction has ended.
    fn answer(self: Box<Self>, end: Result<()>);
}

/// A command made of a closure.
pub(super) struct Pending<T, F> {
    run: F,
    done: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Pending<T, F>
where
    T: Send,
    F: FnMut(&mut Transaction<'_>) -> std::result::Result<T, Fault> + Send,
{
    pub(super) fn new(run: F, reply: oneshot::Sender<Result<T>>) -> Pending<T, F> {
        Pending { run, done: None, reply }
    }
}

impl<T, F> Command for Pending<T, F>
where
    T: Send,
    F: FnMut(&mut Transaction<'_>) -> std::result::Result<T, Fault> + Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) -> std::result::Result<(), Fault> {
        self.done = None;
        self.done = Some((self.run)(transaction)?);
        Ok(())
    }

    fn answer(self: Box<Self>, end: Result<()>) {
        let Pending { done, reply, .. } = *self;
        let answer = end.and_then(|()| done.ok_or_else(|| StoreError::Refused("a command was not run".into())));
        // Whoever asked may be gone; what was committed stands.
        let _ = reply.send(answer);
    }
}

/// What comes down the queue.
pub(super) enum Message {
    Do(Box<dyn Command>),
    /// Finish what is in the queue, fold the log, let go of the file.
    Close(oneshot::Sender<()>),
}

/// Counters that others may read while the writer counts.
#[derive(Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    commands: AtomicU64,
    log_pages: AtomicU64,
    page_bytes: AtomicU64,
}

impl Counters {
    pub(super) fn work(&self) -> Work {
        Work {
            commits: self.commits.load(Ordering::Relaxed),
            commands: self.commands.load(Ordering::Relaxed),
            log_bytes: self.log_pages.load(Ordering::Relaxed) * self.page_bytes.load(Ordering::Relaxed),
        }
    }
}

/// The writer's state.
pub(super) struct Writer {
    connection: Connection,
    remembered: Remembered<Arc<Record>>,
    hold: Option<Hold>,
    counters: Arc<Counters>,
}

impl Writer {
    pub(super) fn new(
        mut connection: Connection,
        remembered: Remembered<Arc<Record>>,
        options: &SqliteOptions,
        counters: Arc<Counters>,
    ) -> rusqlite::Result<Writer> {
        let page_bytes: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        // A frame of the log is a page and a header of 24 bytes.
        counters.page_bytes.store(u64::from(page_bytes) + 24, Ordering::Relaxed);
        connection.wal_hook(Some(count_and_checkpoint(counters.clone(), options.checkpoint_pages)))?;
        Ok(Writer { connection, remembered, hold: options.hold.clone(), counters })
    }

    /// Works until the store is closed or dropped, and finishes what was taken on.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut batch: Vec<Box<dyn Command>> = Vec::with_capacity(LARGEST_BATCH);
        let mut closing = Vec::new();
        while let Some(first) = queue.blocking_recv() {
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Do(command) => batch.push(command),
                    Message::Close(reply) => {
                        queue.close();
                        closing.push(reply);
                    }
                }
                next = if batch.len() < LARGEST_BATCH { queue.try_recv().ok() } else { None };
            }
            if !batch.is_empty() {
                self.commit(&mut batch);
            }
        }
        // The last connection to close folds the log into the file and removes it.
        drop(self);
        for reply in closing {
            let _ = reply.send(());
        }
    }

    /// Runs and commits a batch, then answers.
    fn commit(&mut self, batch: &mut Vec<Box<dyn Command>>) {
        let ends = match self.run_all(batch, Isolation::None) {
            Ok(Some(ends)) => Ok(ends),
            // One of them failed half done. Its neighbours are run again without its traces.
            Ok(None) => self.run_all(batch, Isolation::Savepoints).map(Option::unwrap_or_default),
            Err(error) => Err(error),
        };
        match ends {
            Ok(ends) => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
                self.counters.commands.fetch_add(batch.len() as u64, Ordering::Relaxed);
                for (command, end) in batch.drain(..).zip(ends) {
                    command.answer(end);
                }
            }
            Err(error) => {
                tracing::error!(error = %error, commands = batch.len(), "the store could not commit");
                for command in batch.drain(..) {
                    command.answer(Err(error.clone()));
                }
            }
        }
    }

    /// The end of each command after the commit; `None` if the batch must be run again in isolation.
    fn run_all(&mut self, batch: &mut [Box<dyn Command>], isolation: Isolation) -> Result<Option<Vec<Result<()>>>> {
        self.execute("BEGIN IMMEDIATE").map_err(|why| unavailable(&why))?;
        match self.run_each(batch, isolation) {
            Ok(Some(ends)) => match self.execute("COMMIT") {
                Ok(()) => Ok(Some(ends)),
                Err(error) => {
                    self.roll_back();
                    Err(after_commit(&error))
                }
            },
            Ok(None) => {
                self.roll_back();
                Ok(None)
            }
            Err(why) => {
                self.roll_back();
                Err(StoreError::Unavailable(why))
            }
        }
    }

    fn run_each(
        &mut self,
        batch: &mut [Box<dyn Command>],
        isolation: Isolation,
    ) -> std::result::Result<Option<Vec<Result<()>>>, String> {
        let mut ends = Vec::with_capacity(batch.len());
        for command in batch {
            let written = self.connection.total_changes();
            if isolation == Isolation::Savepoints {
                self.execute("SAVEPOINT command").map_err(|error| error.to_string())?;
            }
            let mut transaction = Transaction {
                connection: &self.connection,
                remembered: &mut self.remembered,
                hold: self.hold.as_ref(),
            };
            let end = match command.run(&mut transaction) {
                Ok(()) => Ok(()),
                Err(Fault::Broken(why)) => return Err(why),
                Err(Fault::Refused(why)) => {
                    tracing::error!(error = %why, "the store refused a command that the rules allow");
                    if isolation == Isolation::Savepoints {
                        self.remembered.forget_all();
                        self.execute("ROLLBACK TO command").map_err(|error| error.to_string())?;
                    } else if self.connection.total_changes() != written {
                        return Ok(None);
                    }
                    Err(StoreError::Refused(why))
                }
            };
            if isolation == Isolation::Savepoints {
                self.execute("RELEASE command").map_err(|error| error.to_string())?;
            }
            ends.push(end);
        }
        Ok(Some(ends))
    }

    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([]).map(drop)
    }

    fn roll_back(&mut self) {
        self.remembered.forget_all();
        // SQLite has already done it after some errors (disk full, I/O).
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(error = %error, "the store could not roll back");
        }
    }
}

/// Whether a command's traces can be taken back without its neighbours'.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Isolation {
    /// No: faults are rare, and a savepoint around every command is paid for every time.
    None,
    /// Yes.
    Savepoints,
}

/// Counts the pages that each commit added to the log, and folds the log into the file in time.
/// (This takes the place of `wal_autocheckpoint`, which uses the same hook.)
fn count_and_checkpoint(
    counters: Arc<Counters>,
    most: u32,
) -> impl FnMut(&mut Wal, i32) -> rusqlite::Result<()> + Send + 'static {
    let mut last = 0;
    move |wal, pages| {
        // After a checkpoint the log begins anew.
        let added = if pages > last { pages - last } else { pages };
        last = pages;
        counters.log_pages.fetch_add(u64::from(added.unsigned_abs()), Ordering::Relaxed);
        if pages.unsigned_abs() >= most {
            // The commit stands, whatever becomes of this; readers may hold it up until the next.
            if let Err(error) = wal.checkpoint() {
                tracing::warn!(error = %error, "the write-ahead log was not checkpointed");
            }
        }
        Ok(())
    }
}

fn unavailable(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

/// What a failed COMMIT means. When the log could not be flushed, its last pages may or may not be
/// on the disk, and after a crash they may or may not be found there.
fn after_commit(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::SystemIoFailure) => StoreError::OutcomeUnknown(error.to_string()),
        _ => unavailable(error),
    }
}
