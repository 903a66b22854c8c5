//! The same statements on the same file and settings with nothing around them: no queue, no
//! decisions, no HTTP. What the benchmark measures the product against, and how it fills a file
//! with finished jobs.

use std::path::Path;
use std::time::{Duration, Instant};

use onejob_core::{Event, Evidence, Payload, Seen, Start, What, decide};
use rusqlite::{Connection, params};

use super::columns::{id, insert_attempt, insert_job, update_attempt};
use super::{open, sql};
use crate::store::record::record_after;
use crate::store::{OpenError, Record, SqliteOptions, Submit};

/// How many jobs one transaction carries when a file is filled.
const FILL_BATCH: usize = 2_000;

/// One connection, set up like the store's writer. It holds no lock: the file must be its own.
pub struct Bare {
    connection: Connection,
}

/// The three stages of a job's whole life, made ahead so that only statements are timed.
pub struct Life {
    queued: Record,
    started: Record,
    succeeded: Record,
}

/// How many commits a job's life takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commits {
    /// Submit and start together, then complete: what the store does when a slot is free.
    Two,
    /// Submit, start, complete.
    Three,
}

impl Life {
    /// Plays a job's life in memory: submitted, started, succeeded.
    pub fn of(submit: &Submit, start: &Start, result: Payload) -> Option<Life> {
        let queued = submit.record();
        let at = submit.at;
        let started = decide(&queued.job, &Event { at, what: What::Start(start.clone()) }).ok()?;
        let started = record_after(&queued, started, at);
        let (attempt, evidence) = (start.attempt, Evidence::Answer);
        let what = What::Succeeded { attempt, result, seen: Seen::default(), evidence };
        let succeeded = decide(&started.job, &Event { at, what }).ok()?;
        let succeeded = record_after(&started, succeeded, at);
        Some(Life { queued, started, succeeded })
    }
}

impl Bare {
    /// Opens or makes the file.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: &Path, options: &SqliteOptions) -> Result<Bare, OpenError> {
        Ok(Bare { connection: open::writer(path, options)? })
    }

    /// Inserts queued jobs, `per_commit` to a commit; says how long it took.
    ///
    /// # Errors
    ///
    /// SQLite's.
    pub fn submit(&mut self, lives: &[Life], per_commit: usize) -> rusqlite::Result<Duration> {
        let began = Instant::now();
        for batch in lives.chunks(per_commit) {
            self.commit(|c| batch.iter().try_for_each(|life| insert(c, &life.queued)))?;
        }
        Ok(began.elapsed())
    }

    /// Runs whole lives, `per_commit` jobs to a commit; says how long it took.
    ///
    /// # Errors
    ///
    /// SQLite's.
    pub fn live(&mut self, lives: &[Life], per_commit: usize, commits: Commits) -> rusqlite::Result<Duration> {
        let began = Instant::now();
        for batch in lives.chunks(per_commit) {
            match commits {
                Commits::Two => self.commit(|c| batch.iter().try_for_each(|life| insert(c, &life.started)))?,
                Commits::Three => {
                    self.commit(|c| batch.iter().try_for_each(|life| insert(c, &life.queued)))?;
                    self.commit(|c| batch.iter().try_for_each(|life| start(c, &life.queued, &life.started)))?;
                }
            }
            self.commit(|c| batch.iter().try_for_each(|life| complete(c, &life.succeeded)))?;
        }
        Ok(began.elapsed())
    }

    /// Fills the file with finished jobs.
    ///
    /// # Errors
    ///
    /// SQLite's.
    pub fn fill(&mut self, lives: impl Iterator<Item = Life>) -> rusqlite::Result<()> {
        let mut lives = lives.peekable();
        while lives.peek().is_some() {
            let batch: Vec<Life> = lives.by_ref().take(FILL_BATCH).collect();
            self.commit(|c| {
                batch.iter().try_for_each(|life| insert(c, &life.started).and_then(|()| complete(c, &life.succeeded)))
            })?;
        }
        Ok(())
    }

    fn commit(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        work(&self.connection)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

fn insert(connection: &Connection, record: &Record) -> rusqlite::Result<()> {
    insert_job(&mut connection.prepare_cached(sql::SUBMIT)?, record)?;
    match record.job.attempts.last() {
        Some(attempt) => insert_attempt(&mut connection.prepare_cached(sql::START)?, record, attempt).map(drop),
        None => Ok(()),
    }
}

fn start(connection: &Connection, before: &Record, after: &Record) -> rusqlite::Result<()> {
    if let Some(attempt) = after.job.attempts.last() {
        insert_attempt(&mut connection.prepare_cached(sql::START)?, after, attempt)?;
    }
    super::columns::update_job(&mut connection.prepare_cached(sql::WRITE_JOB)?, &before.job, after).map(drop)
}

fn complete(connection: &Connection, record: &Record) -> rusqlite::Result<()> {
    let job = &record.job;
    let Some(attempt) = job.attempts.last() else { return Ok(()) };
    update_attempt(&mut connection.prepare_cached(sql::WRITE_ATTEMPT)?, job.id, attempt)?;
    if let onejob_core::Slot::Filled { by, result } = &job.slot {
        let mut statement = connection.prepare_cached(sql::COMPLETE)?;
        statement.execute(params![id(job.id.0), job.version - 1, job.version, id(by.0), result, record.updated_at])?;
    }
    Ok(())
}
