//! Between a row of SQLite and the plain row types. The order of the columns is that of `job_by_id.sql`
//! and `attempts_of_job.sql`.

use std::sync::Arc;

use onejob_core::{
    Attempt, AttemptStateName, Cause, FailureClass, GiveUpClass, Job, JobId, JobState, ResolvedBy, Text,
};
use rusqlite::types::{FromSqlError, Type, ValueRef};
use rusqlite::{CachedStatement, Connection, Row, params};

use super::fault::Fault;
use super::sql;
use crate::id::job_text;
use crate::store::row::{AttemptRow, JobRow, failover_word, parse_effects, parse_failover};
use crate::store::{ListedAttempt, Record, Tombstone};

/// An id as it is stored.
pub(super) fn id(id: u128) -> [u8; 16] {
    id.to_be_bytes()
}

/// A 128-bit id.
pub(super) fn id_at(row: &Row<'_>, column: usize) -> rusqlite::Result<u128> {
    row.get::<_, [u8; 16]>(column).map(u128::from_be_bytes)
}

pub(super) fn maybe_id_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u128>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(u128::from_be_bytes))
}

/// A text that must be there.
pub(super) fn text_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Text> {
    Ok(Arc::from(row.get_ref(column)?.as_str().map_err(|error| unreadable(row, column, error))?))
}

pub(super) fn maybe_text_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Text>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => text_at(row, column).map(Some),
    }
}

/// A word of one of our closed lists.
fn word_at<T>(row: &Row<'_>, column: usize, parse: fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let word = row.get_ref(column)?.as_str().map_err(|error| unreadable(row, column, error))?;
    parse(word).ok_or_else(|| unreadable(row, column, FromSqlError::InvalidType))
}

fn maybe_word_at<T>(row: &Row<'_>, column: usize, parse: fn(&str) -> Option<T>) -> rusqlite::Result<Option<T>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => word_at(row, column, parse).map(Some),
    }
}

fn unreadable(row: &Row<'_>, column: usize, error: FromSqlError) -> rusqlite::Error {
    let name = row.as_ref().column_name(column).unwrap_or("?").to_owned();
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, format!("{name}: {error}").into())
}

/// The job and its attempts; both statements see one snapshot only inside a transaction.
pub(super) fn load(connection: &Connection, job: JobId) -> Result<Option<Record>, Fault> {
    let mut statement = connection.prepare_cached(sql::JOB_BY_ID)?;
    let mut rows = statement.query(params![id(job.0)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let believed = read_job(row).map_err(|error| damaged(job, &error))?;
    let attempts = load_attempts(connection, job)?;
    believed.record(attempts).map(Some).map_err(Fault::Refused)
}

fn load_attempts(connection: &Connection, job: JobId) -> Result<Vec<Attempt>, Fault> {
    let mut statement = connection.prepare_cached(sql::ATTEMPTS_OF_JOB)?;
    let mut rows = statement.query(params![id(job.0)])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        let row = read_attempt(row).map_err(|error| damaged(job, &error))?;
        attempts.push(row.attempt().map_err(|why| meaningless(job, &why))?);
    }
    Ok(attempts)
}

/// Every row of one of the statements that list attempts.
pub(super) fn read_listed(rows: &mut rusqlite::Rows<'_>) -> Result<Vec<ListedAttempt>, Fault> {
    let mut listed = Vec::new();
    while let Some(row) = rows.next()? {
        let job = JobId(id_at(row, 25)?);
        let attempt = read_attempt(row).map_err(|error| damaged(job, &error))?;
        listed.push(ListedAttempt {
            attempt: attempt.attempt().map_err(|why| meaningless(job, &why))?,
            job,
            owner: text_at(row, 26)?,
            task: text_at(row, 27)?,
        });
    }
    Ok(listed)
}

fn damaged(job: JobId, error: &rusqlite::Error) -> Fault {
    match Fault::of(error) {
        Fault::Refused(why) => meaningless(job, &why),
        broken @ Fault::Broken(_) => broken,
    }
}

fn meaningless(job: JobId, why: &str) -> Fault {
    Fault::Refused(format!("the stored {} means nothing: {why}", job_text(job)))
}

/// A row of `tombstone.sql`.
pub(super) fn read_tombstone(row: &Row<'_>) -> rusqlite::Result<Tombstone> {
    Ok(Tombstone { job: JobId(id_at(row, 0)?), state: word_at(row, 1, JobState::parse)?, ended_at: row.get(2)? })
}

fn read_job(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        id: id_at(row, 0)?,
        owner: text_at(row, 1)?,
        idempotency_key: text_at(row, 2)?,
        task: maybe_text_at(row, 3)?,
        provider: maybe_text_at(row, 4)?,
        fingerprint_version: row.get(5)?,
        fingerprint: row.get(6)?,
        effects: word_at(row, 7, parse_effects)?,
        priority: row.get(8)?,
        run_at: row.get(9)?,
        deadline: row.get(10)?,
        state: word_at(row, 11, JobState::parse)?,
        version: row.get(12)?,
        tries_from: row.get(13)?,
        next_provider: maybe_text_at(row, 14)?,
        next_primary: maybe_text_at(row, 15)?,
        next_certificate: maybe_id_at(row, 16)?,
        due_at: row.get(17)?,
        completed_by: maybe_id_at(row, 18)?,
        error_class: maybe_word_at(row, 19, GiveUpClass::parse)?,
        error_status: row.get(20)?,
        error_message: maybe_text_at(row, 21)?,
        error_failover: maybe_word_at(row, 22, parse_failover)?,
        duplicates: row.get(23)?,
        created_at: row.get(24)?,
        updated_at: row.get(25)?,
        metadata: text_at(row, 26)?,
        input: maybe_text_at(row, 27)?,
        result: maybe_text_at(row, 28)?,
    })
}

fn read_attempt(row: &Row<'_>) -> rusqlite::Result<AttemptRow> {
    Ok(AttemptRow {
        id: id_at(row, 0)?,
        number: row.get(1)?,
        provider: text_at(row, 2)?,
        primary_provider: text_at(row, 3)?,
        by_hand: row.get(4)?,
        certificate_id: maybe_id_at(row, 5)?,
        node: id_at(row, 6)?,
        version_read: row.get(7)?,
        started_at: row.get(8)?,
        state: word_at(row, 9, AttemptStateName::parse)?,
        handle: maybe_text_at(row, 10)?,
        model: maybe_text_at(row, 11)?,
        input_tokens: row.get(12)?,
        output_tokens: row.get(13)?,
        cause: maybe_word_at(row, 14, Cause::parse)?,
        unknown_since: row.get(15)?,
        finished_at: row.get(16)?,
        failure_class: maybe_word_at(row, 17, FailureClass::parse)?,
        failure_status: row.get(18)?,
        failure_message: maybe_text_at(row, 19)?,
        superseded_by: maybe_id_at(row, 20)?,
        never_sent: row.get(21)?,
        resolved_by: maybe_word_at(row, 22, ResolvedBy::parse)?,
        resolved_at: row.get(23)?,
        resolved_reason: maybe_text_at(row, 24)?,
    })
}

/// Binds and runs `submit.sql`; says how many rows it wrote.
pub(super) fn insert_job(statement: &mut CachedStatement<'_>, record: &Record) -> rusqlite::Result<usize> {
    let row = JobRow::of(record);
    statement.execute(params![
        id(row.id),
        row.owner,
        row.idempotency_key,
        row.task,
        row.provider,
        row.fingerprint_version,
        row.fingerprint,
        row.effects.as_str(),
        row.priority,
        row.run_at,
        row.deadline,
        row.state.as_str(),
        row.version,
        row.tries_from,
        row.next_provider,
        row.next_primary,
        row.next_certificate.map(id),
        row.due_at,
        row.completed_by.map(id),
        row.error_class.map(GiveUpClass::as_str),
        row.error_status,
        row.error_message,
        row.error_failover.map(failover_word),
        row.duplicates,
        row.created_at,
        row.updated_at,
        row.metadata,
        row.input,
        row.result,
    ])
}

/// Binds and runs `write_job.sql`; says how many rows it wrote.
pub(super) fn update_job(statement: &mut CachedStatement<'_>, before: &Job, after: &Record) -> rusqlite::Result<usize> {
    let row = JobRow::of(after);
    statement.execute(params![
        id(row.id),
        before.version,
        row.state.as_str(),
        row.version,
        row.tries_from,
        row.next_provider,
        row.next_primary,
        row.next_certificate.map(id),
        row.due_at,
        row.error_class.map(GiveUpClass::as_str),
        row.error_status,
        row.error_message,
        row.error_failover.map(failover_word),
        row.updated_at,
    ])
}

/// Binds and runs `start.sql`.
pub(super) fn insert_attempt(
    statement: &mut CachedStatement<'_>,
    record: &Record,
    attempt: &Attempt,
) -> rusqlite::Result<usize> {
    let row = AttemptRow::of(attempt);
    statement.execute(params![
        id(record.job.id.0),
        id(row.id),
        row.number,
        record.intent.as_ref().map(|intent| &intent.task),
        row.provider,
        row.primary_provider,
        row.by_hand,
        record.job.effects == onejob_core::Effects::Exclusive,
        row.certificate_id.map(id),
        id(row.node),
        row.version_read,
        row.started_at,
        row.state.as_str(),
    ])
}

/// Binds and runs `write_attempt.sql`; says how many rows it wrote.
pub(super) fn update_attempt(
    statement: &mut CachedStatement<'_>,
    job: JobId,
    attempt: &Attempt,
) -> rusqlite::Result<usize> {
    let row = AttemptRow::of(attempt);
    statement.execute(params![
        id(job.0),
        row.number,
        row.state.as_str(),
        row.handle,
        row.model,
        row.input_tokens,
        row.output_tokens,
        row.cause.map(Cause::as_str),
        row.unknown_since,
        row.finished_at,
        row.failure_class.map(FailureClass::as_str),
        row.failure_status,
        row.failure_message,
        row.superseded_by.map(id),
        row.never_sent,
        row.resolved_by.map(ResolvedBy::as_str),
        row.resolved_at,
        row.resolved_reason,
    ])
}
