//! The verbs that read, and the small look-ups of the writer.

use std::collections::BTreeSet;
use std::sync::Arc;

use onejob_core::{AttemptId, AttemptStateName, JobId, JobState, Millis, Text};
use rusqlite::{Connection, OptionalExtension, params};

use super::columns::{id, id_at, load, read_listed, text_at};
use super::fault::Fault;
use super::sql;
use crate::store::{AttemptFilter, COUNT_CAP, Census, Glance, JobFilter, ListedAttempt, Record, StoredNotice};

/// Greater than every id: where a list without `before` begins.
pub(super) const AFTER_ALL: [u8; 17] = [0xff; 17];

/// An owner with fewer jobs than this gets all of them sorted; one with more is dense enough that
/// walking the newest jobs finds a page of its own soon.
const FEW_JOBS: i64 = 1_000;

pub(super) fn job(connection: &Connection, job: JobId) -> Result<Option<Arc<Record>>, Fault> {
    Ok(load(connection, job)?.map(Arc::new))
}

pub(super) fn jobs_unlike(connection: &Connection, seen: &[Glance]) -> Result<Vec<Arc<Record>>, Fault> {
    let mut changed = Vec::new();
    for seen in seen {
        changed.extend(job(connection, seen.job)?.filter(|now| *seen != Glance::at(now)));
    }
    Ok(changed)
}

pub(super) fn job_of_attempt(connection: &Connection, attempt: AttemptId) -> Result<Option<Arc<Record>>, Fault> {
    let mut statement = connection.prepare_cached(sql::JOB_OF_ATTEMPT)?;
    match statement.query_row(params![id(attempt.0)], |row| id_at(row, 0)).optional()? {
        Some(found) => job(connection, JobId(found)),
        None => Ok(None),
    }
}

pub(super) fn list_jobs(connection: &Connection, filter: &JobFilter) -> Result<Vec<Arc<Record>>, Fault> {
    let mut statement = connection.prepare_cached(list_statement(connection, filter)?)?;
    let before = filter.before.map(|before| id(before.0));
    let mut rows = statement.query(params![
        before.as_ref().map_or(&AFTER_ALL[..], |before| &before[..]),
        filter.owner,
        filter.idempotency_key,
        filter.task,
        filter.state.map(JobState::as_str),
        limit(filter.limit),
    ])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.extend(job(connection, JobId(id_at(row, 0)?))?);
    }
    Ok(jobs)
}

/// The statement whose index holds the fewest jobs that the filter drops.
fn list_statement(connection: &Connection, filter: &JobFilter) -> Result<&'static str, Fault> {
    if let (Some(_), Some(_)) = (&filter.owner, &filter.idempotency_key) {
        return Ok(sql::LIST_JOBS_OF_KEY);
    }
    if let Some(owner) = &filter.owner {
        let mut count = connection.prepare_cached(sql::COUNT_JOBS_OF_OWNER)?;
        if count.query_row(params![owner, FEW_JOBS], |row| row.get::<_, i64>(0))? < FEW_JOBS {
            return Ok(sql::LIST_JOBS_OF_OWNER);
        }
    }
    Ok(match filter.state {
        Some(JobState::Queued | JobState::Unknown | JobState::Failed | JobState::Cancelled) => {
            sql::LIST_JOBS_BY_RARER_STATE
        }
        Some(JobState::Running) => sql::LIST_JOBS_RUNNING,
        Some(JobState::Succeeded) | None => sql::LIST_JOBS,
    })
}

pub(super) fn list_attempts(connection: &Connection, filter: &AttemptFilter) -> Result<Vec<ListedAttempt>, Fault> {
    let statement = match filter.state {
        Some(AttemptStateName::Unknown) => sql::LIST_ATTEMPTS_UNKNOWN,
        Some(AttemptStateName::Starting | AttemptStateName::Running) => sql::LIST_ATTEMPTS_LIVE,
        Some(
            AttemptStateName::Succeeded
            | AttemptStateName::Failed
            | AttemptStateName::Superseded
            | AttemptStateName::Cancelled
            | AttemptStateName::Abandoned,
        )
        | None => sql::LIST_ATTEMPTS,
    };
    let mut statement = connection.prepare_cached(statement)?;
    let before = filter.before.map(|before| id(before.0));
    let mut rows = statement.query(params![
        before.as_ref().map_or(&AFTER_ALL[..], |before| &before[..]),
        filter.owner,
        filter.task,
        filter.provider,
        filter.state.map(AttemptStateName::as_str),
        limit(filter.limit),
    ])?;
    read_listed(&mut rows)
}

pub(super) fn unknown_longest(connection: &Connection, task: &Text, most: usize) -> Result<Vec<ListedAttempt>, Fault> {
    let mut statement = connection.prepare_cached(sql::UNKNOWN_LONGEST)?;
    read_listed(&mut statement.query(params![task, limit(most)])?)
}

pub(super) fn queued_deadlines(connection: &Connection, most: usize) -> Result<Vec<(JobId, Millis)>, Fault> {
    let mut statement = connection.prepare_cached(sql::QUEUED_DEADLINES)?;
    let mut rows = statement.query(params![limit(most)])?;
    let mut deadlines = Vec::new();
    while let Some(row) = rows.next()? {
        deadlines.push((JobId(id_at(row, 0)?), row.get(1)?));
    }
    Ok(deadlines)
}

pub(super) fn awaited_providers(connection: &Connection) -> Result<Vec<Text>, Fault> {
    let mut statement = connection.prepare_cached(sql::NEXT_PROVIDER)?;
    let mut providers: Vec<Text> = Vec::new();
    loop {
        let last = providers.last().map_or("", |last| last);
        match statement.query_row(params![last], |row| text_at(row, 0)).optional()? {
            Some(provider) => providers.push(provider),
            None => return Ok(providers),
        }
    }
}

pub(super) fn notices(connection: &Connection, job: JobId) -> Result<Vec<StoredNotice>, Fault> {
    let mut statement = connection.prepare_cached(sql::NOTICES)?;
    let mut rows = statement.query(params![id(job.0)])?;
    let mut notices = Vec::new();
    while let Some(row) = rows.next()? {
        let attempt: Option<[u8; 16]> = row.get(1)?;
        notices.push(StoredNotice {
            at: row.get(0)?,
            job,
            attempt: attempt.map(|id| AttemptId(u128::from_be_bytes(id))),
            kind: text_at(row, 2)?,
            detail: text_at(row, 3)?,
        });
    }
    Ok(notices)
}

pub(super) fn census(connection: &Connection) -> Result<Census, Fault> {
    let cap = limit(usize::try_from(COUNT_CAP).unwrap_or(usize::MAX));
    let count = |statement: &str| -> Result<u64, Fault> {
        let mut statement = connection.prepare_cached(statement)?;
        let count: i64 = statement.query_row(params![cap], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    };
    let mut census = Census {
        queued_jobs: count(sql::COUNT_QUEUED)?,
        unknown_attempts: count(sql::COUNT_UNKNOWN)?,
        oldest_unknown_since: None,
        oldest_due: None,
    };
    let mut statement = connection.prepare_cached(sql::NEXT_UNKNOWN_TASK)?;
    let mut last: Text = "".into();
    let read = |row: &rusqlite::Row<'_>| Ok((text_at(row, 0)?, row.get::<_, Millis>(1)?));
    while let Some((task, since)) = statement.query_row(params![last], read).optional()? {
        census.oldest_unknown_since = [census.oldest_unknown_since, Some(since)].into_iter().flatten().min();
        last = task;
    }
    for provider in awaited_providers(connection)? {
        let mut above = i64::MAX;
        while let Some(priority) = next_priority(connection, &provider, above)? {
            above = priority;
            let due = next_due(connection, &provider, priority, &BTreeSet::new())?;
            census.oldest_due = [census.oldest_due, due].into_iter().flatten().min();
        }
    }
    Ok(census)
}

/// The highest priority below `above` in a provider's line.
pub(super) fn next_priority(connection: &Connection, provider: &Text, above: i64) -> Result<Option<i64>, Fault> {
    let mut statement = connection.prepare_cached(sql::NEXT_PRIORITY)?;
    Ok(statement.query_row(params![provider, above], |row| row.get(0)).optional()?)
}

/// Jobs of one priority that are due, after `last`.
pub(super) fn due(
    connection: &Connection,
    provider: &Text,
    priority: i64,
    at: Millis,
    last: (Millis, JobId),
    most: usize,
) -> Result<Vec<(Millis, JobId)>, Fault> {
    let mut statement = connection.prepare_cached(sql::CLAIM)?;
    let mut rows = statement.query(params![provider, priority, at, last.0, id(last.1.0), limit(most)])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push((row.get(0)?, JobId(id_at(row, 1)?)));
    }
    Ok(due)
}

/// When the first job of one priority comes due, but for those passed over.
pub(super) fn next_due(
    connection: &Connection,
    provider: &Text,
    priority: i64,
    passed_over: &BTreeSet<JobId>,
) -> Result<Option<Millis>, Fault> {
    let mut statement = connection.prepare_cached(sql::NEXT_DUE)?;
    let mut rows = statement.query(params![provider, priority, limit(passed_over.len() + 1)])?;
    while let Some(row) = rows.next()? {
        if !passed_over.contains(&JobId(id_at(row, 1)?)) {
            return Ok(Some(row.get(0)?));
        }
    }
    Ok(None)
}

/// A limit as SQLite takes it; a negative one would mean none.
pub(super) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
