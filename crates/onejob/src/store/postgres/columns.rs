//! Between rows of PostgreSQL and the plain row types. The order of the columns read is that of
//! `jobs_of_page.sql`; the order of the columns written is that of each statement's `unnest`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use onejob_core::{
    Attempt, AttemptId, AttemptStateName, Cause, FailureClass, GiveUpClass, JobId, JobState, ResolvedBy, Text,
};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::fault::{Fault, sentence};
use super::link::{Bound, column, value};
use crate::id::job_text;
use crate::store::notice::MOST_OF_A_KIND;
use crate::store::row::{AttemptRow, JobRow, failover_word, parse_effects, parse_failover};
use crate::store::{ListedAttempt, Record, StoredNotice, Tombstone};

/// Where the columns of an attempt begin in `jobs_of_page.sql`.
const ATTEMPT: usize = 30;

/// A job as this node knows it: what the rows said, or what it wrote itself.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) record: Arc<Record>,
    /// The rows' revision; see the schema.
    pub(super) revision: i64,
}

/// An id as it is stored.
pub(super) fn id(id: u128) -> Uuid {
    Uuid::from_u128(id)
}

/// A value of a row, or a fault that names the column and not the value.
pub(super) fn at<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Result<T, Fault> {
    row.try_get(place).map_err(|error| {
        let name = row.columns().get(place).map_or("?", |column| column.name());
        Fault::Row(format!("{name}: {}", sentence(&error)))
    })
}

/// A 128-bit id.
pub(super) fn id_at(row: &Row, place: usize) -> Result<u128, Fault> {
    at::<Uuid>(row, place).map(|id| id.as_u128())
}

pub(super) fn maybe_id_at(row: &Row, place: usize) -> Result<Option<u128>, Fault> {
    Ok(at::<Option<Uuid>>(row, place)?.map(|id| id.as_u128()))
}

/// A text that must be there.
pub(super) fn text_at(row: &Row, place: usize) -> Result<Text, Fault> {
    at::<&str>(row, place).map(Text::from)
}

pub(super) fn maybe_text_at(row: &Row, place: usize) -> Result<Option<Text>, Fault> {
    Ok(at::<Option<&str>>(row, place)?.map(Text::from))
}

/// A word of one of our closed lists.
pub(super) fn word_at<T>(row: &Row, place: usize, parse: fn(&str) -> Option<T>) -> Result<T, Fault> {
    parse(at(row, place)?).ok_or_else(|| unknown_word(row, place))
}

fn maybe_word_at<T>(row: &Row, place: usize, parse: fn(&str) -> Option<T>) -> Result<Option<T>, Fault> {
    match at::<Option<&str>>(row, place)? {
        None => Ok(None),
        Some(word) => parse(word).map(Some).ok_or_else(|| unknown_word(row, place)),
    }
}

fn unknown_word(row: &Row, place: usize) -> Fault {
    let name = row.columns().get(place).map_or("?", |column| column.name());
    Fault::Row(format!("{name} holds a word that is not known"))
}

/// The jobs of one of the statements that end in `jobs_of_page.sql`. A damaged one is refused by name; its
/// neighbours are sound.
pub(super) fn read_jobs(rows: &[Row]) -> Result<HashMap<JobId, Result<Known, Fault>>, Fault> {
    let mut of_job: HashMap<JobId, Vec<&Row>> = HashMap::new();
    for row in rows {
        of_job.entry(JobId(id_at(row, 0)?)).or_default().push(row);
    }
    Ok(of_job.into_iter().map(|(job, rows)| (job, read_one(job, rows))).collect())
}

fn read_one(job: JobId, mut rows: Vec<&Row>) -> Result<Known, Fault> {
    rows.sort_by_key(|row| at::<Option<i64>>(row, ATTEMPT + 1).ok().flatten());
    let believed = (|| {
        let first = rows.first().ok_or_else(|| Fault::Row("it has no row".into()))?;
        let mut attempts = Vec::with_capacity(rows.len());
        for row in &rows {
            if at::<Option<Uuid>>(row, ATTEMPT)?.is_some() {
                attempts.push(read_attempt(row, ATTEMPT)?);
            }
        }
        let attempts = attempts.into_iter().map(AttemptRow::attempt).collect::<Result<Vec<_>, _>>();
        Ok::<_, Fault>((read_job(first)?, attempts.map_err(Fault::Row)?, at::<i64>(first, 29)?))
    })();
    let (row, attempts, revision) = believed.map_err(|fault| meaningless(job, fault))?;
    let record = row.record(attempts).map_err(Fault::Row)?;
    Ok(Known { record: Arc::new(record), revision })
}

fn meaningless(job: JobId, fault: Fault) -> Fault {
    match fault {
        Fault::Row(why) => Fault::Row(format!("the stored {} means nothing: {why}", job_text(job))),
        other @ (Fault::Stale(_)
        | Fault::NoLease
        | Fault::Retry(_)
        | Fault::Held(_)
        | Fault::Away(_)
        | Fault::Ambiguous(_)) => other,
    }
}

/// Every row of one of the statements that list attempts.
pub(super) fn read_listed(rows: &[Row]) -> Result<Vec<ListedAttempt>, Fault> {
    let read = |row: &Row| {
        let job = JobId(id_at(row, 25)?);
        let attempt = read_attempt(row, 0).and_then(|row| row.attempt().map_err(Fault::Row));
        let attempt = attempt.map_err(|fault| meaningless(job, fault))?;
        Ok(ListedAttempt { attempt, job, owner: text_at(row, 26)?, task: text_at(row, 27)? })
    };
    rows.iter().map(read).collect()
}

/// A row of `tombstone.sql`, without the key.
pub(super) fn read_tombstone(row: &Row) -> Result<Tombstone, Fault> {
    Ok(Tombstone { job: JobId(id_at(row, 2)?), state: word_at(row, 3, JobState::parse)?, ended_at: at(row, 4)? })
}

/// A row of `notices.sql`.
pub(super) fn read_notice(job: JobId, row: &Row) -> Result<StoredNotice, Fault> {
    Ok(StoredNotice {
        at: at(row, 0)?,
        job,
        attempt: maybe_id_at(row, 1)?.map(AttemptId),
        kind: text_at(row, 2)?,
        detail: text_at(row, 3)?,
    })
}

fn read_job(row: &Row) -> Result<JobRow, Fault> {
    let digest = at::<Option<&[u8]>>(row, 6)?.map(<[u8; 32]>::try_from).transpose();
    Ok(JobRow {
        id: id_at(row, 0)?,
        owner: text_at(row, 1)?,
        idempotency_key: text_at(row, 2)?,
        task: maybe_text_at(row, 3)?,
        provider: maybe_text_at(row, 4)?,
        fingerprint_version: at(row, 5)?,
        fingerprint: digest.map_err(|_| Fault::Row("fingerprint has another length".into()))?,
        effects: word_at(row, 7, parse_effects)?,
        priority: at(row, 8)?,
        run_at: at(row, 9)?,
        deadline: at(row, 10)?,
        state: word_at(row, 11, JobState::parse)?,
        version: at(row, 12)?,
        tries_from: at(row, 13)?,
        next_provider: maybe_text_at(row, 14)?,
        next_primary: maybe_text_at(row, 15)?,
        next_certificate: maybe_id_at(row, 16)?,
        due_at: at(row, 17)?,
        completed_by: maybe_id_at(row, 18)?,
        error_class: maybe_word_at(row, 19, GiveUpClass::parse)?,
        error_status: at(row, 20)?,
        error_message: maybe_text_at(row, 21)?,
        error_failover: maybe_word_at(row, 22, parse_failover)?,
        duplicates: at(row, 23)?,
        created_at: at(row, 24)?,
        updated_at: at(row, 25)?,
        metadata: text_at(row, 26)?,
        input: maybe_text_at(row, 27)?,
        result: maybe_text_at(row, 28)?,
    })
}

fn read_attempt(row: &Row, from: usize) -> Result<AttemptRow, Fault> {
    Ok(AttemptRow {
        id: id_at(row, from)?,
        number: at(row, from + 1)?,
        provider: text_at(row, from + 2)?,
        primary_provider: text_at(row, from + 3)?,
        by_hand: at(row, from + 4)?,
        certificate_id: maybe_id_at(row, from + 5)?,
        node: id_at(row, from + 6)?,
        version_read: at(row, from + 7)?,
        started_at: at(row, from + 8)?,
        state: word_at(row, from + 9, AttemptStateName::parse)?,
        handle: maybe_text_at(row, from + 10)?,
        model: maybe_text_at(row, from + 11)?,
        input_tokens: at(row, from + 12)?,
        output_tokens: at(row, from + 13)?,
        cause: maybe_word_at(row, from + 14, Cause::parse)?,
        unknown_since: at(row, from + 15)?,
        finished_at: at(row, from + 16)?,
        failure_class: maybe_word_at(row, from + 17, FailureClass::parse)?,
        failure_status: at(row, from + 18)?,
        failure_message: maybe_text_at(row, from + 19)?,
        superseded_by: maybe_id_at(row, from + 20)?,
        never_sent: at(row, from + 21)?,
        resolved_by: maybe_word_at(row, from + 22, ResolvedBy::parse)?,
        resolved_at: at(row, from + 23)?,
        resolved_reason: maybe_text_at(row, from + 24)?,
    })
}

/// What people and providers said about an attempt, as the database can hold it: its texts take every
/// character but NUL. Keys, owners and inputs are never altered: what it cannot hold of those is refused.
pub(super) fn holdable(text: Option<&Text>) -> Option<Cow<'_, str>> {
    text.map(|text| match text.contains('\0') {
        true => Cow::Owned(text.replace('\0', "\u{fffd}")),
        false => Cow::Borrowed(&**text),
    })
}

fn maybe(id_of: Option<u128>) -> Option<Uuid> {
    id_of.map(id)
}

/// The parameters of `submit.sql`.
pub(super) fn bind_jobs(rows: &[JobRow]) -> Bound<'_> {
    vec![
        column(rows, |r| id(r.id)),
        column(rows, |r| &*r.owner),
        column(rows, |r| &*r.idempotency_key),
        column(rows, |r| r.task.as_deref()),
        column(rows, |r| r.provider.as_deref()),
        column(rows, |r| r.fingerprint_version),
        column(rows, |r| r.fingerprint.as_ref().map(|digest| &digest[..])),
        column(rows, |r| r.effects.as_str()),
        column(rows, |r| r.priority),
        column(rows, |r| r.run_at),
        column(rows, |r| r.deadline),
        column(rows, |r| r.state.as_str()),
        column(rows, |r| r.version),
        column(rows, |r| r.next_provider.as_deref()),
        column(rows, |r| r.next_primary.as_deref()),
        column(rows, |r| maybe(r.next_certificate)),
        column(rows, |r| r.due_at),
        column(rows, |r| r.created_at),
        column(rows, |r| &*r.metadata),
        column(rows, |r| r.input.as_deref()),
    ]
}

/// The parameters of `start.sql`: jobs and their new attempts.
pub(super) fn bind_starts<'a>(rows: &'a [(JobId, &'a Attempt)]) -> Bound<'a> {
    vec![
        column(rows, |(job, _)| id(job.0)),
        column(rows, |(_, a)| id(a.id.0)),
        column(rows, |(_, a)| i64::from(a.number)),
        column(rows, |(_, a)| &*a.provider),
        column(rows, |(_, a)| &*a.primary),
        column(rows, |(_, a)| a.by_hand),
        column(rows, |(_, a)| a.certificate.map(|certificate| id(certificate.0))),
        column(rows, |(_, a)| id(a.node.0)),
        column(rows, |(_, a)| i64::from(a.version_read)),
        column(rows, |(_, a)| a.started_at),
    ]
}

/// The parameters of `write_attempt.sql`.
pub(super) fn bind_attempts(rows: &[(JobId, AttemptRow)]) -> Bound<'_> {
    vec![
        column(rows, |(job, _)| id(job.0)),
        column(rows, |(_, r)| r.number),
        column(rows, |(_, r)| r.state.as_str()),
        column(rows, |(_, r)| holdable(r.handle.as_ref())),
        column(rows, |(_, r)| holdable(r.model.as_ref())),
        column(rows, |(_, r)| r.input_tokens),
        column(rows, |(_, r)| r.output_tokens),
        column(rows, |(_, r)| r.cause.map(Cause::as_str)),
        column(rows, |(_, r)| r.unknown_since),
        column(rows, |(_, r)| r.finished_at),
        column(rows, |(_, r)| r.failure_class.map(FailureClass::as_str)),
        column(rows, |(_, r)| r.failure_status),
        column(rows, |(_, r)| holdable(r.failure_message.as_ref())),
        column(rows, |(_, r)| maybe(r.superseded_by)),
        column(rows, |(_, r)| r.never_sent),
        column(rows, |(_, r)| r.resolved_by.map(ResolvedBy::as_str)),
        column(rows, |(_, r)| r.resolved_at),
        column(rows, |(_, r)| holdable(r.resolved_reason.as_ref())),
    ]
}

/// A job's row as it is to be, beside what it is now.
pub(super) struct Written {
    pub(super) revision_read: i64,
    pub(super) version_read: i64,
    pub(super) row: JobRow,
}

/// The parameters of `complete.sql`.
pub(super) fn bind_completed(rows: &[Written]) -> Bound<'_> {
    vec![
        column(rows, |w| id(w.row.id)),
        column(rows, |w| w.revision_read),
        column(rows, |w| w.version_read),
        column(rows, |w| w.row.version),
        column(rows, |w| maybe(w.row.completed_by)),
        column(rows, |w| w.row.result.as_deref()),
        column(rows, |w| w.row.updated_at),
    ]
}

/// The parameters of `write_job.sql`.
pub(super) fn bind_written(rows: &[Written]) -> Bound<'_> {
    vec![
        column(rows, |w| id(w.row.id)),
        column(rows, |w| w.revision_read),
        column(rows, |w| w.version_read),
        column(rows, |w| w.row.state.as_str()),
        column(rows, |w| w.row.version),
        column(rows, |w| w.row.tries_from),
        column(rows, |w| w.row.next_provider.as_deref()),
        column(rows, |w| w.row.next_primary.as_deref()),
        column(rows, |w| maybe(w.row.next_certificate)),
        column(rows, |w| w.row.due_at),
        column(rows, |w| w.row.error_class.map(GiveUpClass::as_str)),
        column(rows, |w| w.row.error_status),
        column(rows, |w| holdable(w.row.error_message.as_ref())),
        column(rows, |w| w.row.error_failover.map(failover_word)),
        column(rows, |w| w.row.updated_at),
    ]
}

/// The parameters of `touch_job.sql`.
pub(super) fn bind_touched(rows: &[Written]) -> Bound<'_> {
    vec![
        column(rows, |w| id(w.row.id)),
        column(rows, |w| w.revision_read),
        column(rows, |w| w.version_read),
        column(rows, |w| w.row.updated_at),
    ]
}

/// The parameters of `fill_in.sql`.
pub(super) fn bind_filled(rows: &[JobRow]) -> Bound<'_> {
    vec![
        column(rows, |r| id(r.id)),
        column(rows, |r| r.task.as_deref()),
        column(rows, |r| r.provider.as_deref()),
        column(rows, |r| r.fingerprint_version),
        column(rows, |r| r.fingerprint.as_ref().map(|digest| &digest[..])),
        column(rows, |r| r.input.as_deref()),
        column(rows, |r| &*r.metadata),
        column(rows, |r| r.priority),
        column(rows, |r| r.run_at),
        column(rows, |r| r.updated_at),
    ]
}

/// The parameters of `enqueue.sql`: rows of queued jobs.
pub(super) fn bind_queued(rows: &[JobRow]) -> Bound<'_> {
    vec![
        column(rows, |r| id(r.id)),
        column(rows, |r| r.next_provider.as_deref()),
        column(rows, |r| r.priority),
        column(rows, |r| r.due_at),
        column(rows, |r| r.deadline),
    ]
}

/// The parameters of `notice.sql`. Their ids are drawn here, in order: UUIDv7 of one process ascend.
pub(super) fn bind_notices(rows: &[StoredNotice]) -> Bound<'_> {
    vec![
        column(rows, |n| id(n.job.0)),
        column(rows, |_| Uuid::now_v7()),
        column(rows, |n| n.attempt.map(|attempt| id(attempt.0))),
        column(rows, |n| n.at),
        column(rows, |n| &*n.kind),
        column(rows, |n| holdable(Some(&n.detail))),
        value(MOST_OF_A_KIND as i64),
    ]
}

/// The one parameter of statements about a set of jobs.
pub(super) fn bind_ids(jobs: &[JobId]) -> Bound<'_> {
    vec![column(jobs, |job| id(job.0))]
}
