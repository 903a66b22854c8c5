//! The verbs that read: each one statement, and so one snapshot.

use std::sync::Arc;

use onejob_core::{AttemptId, AttemptStateName, JobId, JobState, Millis, Text};
use uuid::Uuid;

use super::columns::{Known, at, bind_ids, id, id_at, read_jobs, read_listed, read_notice, text_at};
use super::fault::Fault;
use super::link::{Bound, Links, column, value};
use super::sql::{self, Statement};
use crate::store::{AttemptFilter, COUNT_CAP, Census, Glance, JobFilter, ListedAttempt, Record, StoredNotice};

type Result<T> = std::result::Result<T, Fault>;

/// An owner with fewer jobs than this gets all of them sorted; one with more is dense enough that
/// walking the newest jobs finds a page of its own soon.
const FEW_JOBS: i64 = 1_000;

pub(super) async fn job(links: &Links, job: JobId) -> Result<Option<Arc<Record>>> {
    one(page(links, &sql::JOB_BY_ID, bind_ids(&[job])).await?)
}

pub(super) async fn job_of_attempt(links: &Links, attempt: AttemptId) -> Result<Option<Arc<Record>>> {
    one(page(links, &sql::JOB_OF_ATTEMPT, vec![value(id(attempt.0))]).await?)
}

pub(super) async fn jobs_unlike(links: &Links, seen: &[Glance]) -> Result<Vec<Arc<Record>>> {
    if seen.is_empty() {
        return Ok(Vec::new());
    }
    let bound = vec![
        column(seen, |glance| id(glance.job.0)),
        column(seen, |glance| glance.state.as_str()),
        column(seen, |glance| glance.updated_at),
    ];
    page(links, &sql::JOBS_UNLIKE, bound).await
}

pub(super) async fn list_jobs(links: &Links, filter: &JobFilter) -> Result<Vec<Arc<Record>>> {
    let statement = list_statement(links, filter).await?;
    let mut bound: Bound<'_> = vec![
        value(filter.before.map_or(Uuid::max(), |before| id(before.0))),
        value(filter.owner.as_deref()),
        value(filter.idempotency_key.as_deref()),
        value(filter.task.as_deref()),
        value(filter.state.map(JobState::as_str)),
    ];
    bound.push(value(limit(filter.limit)));
    page(links, statement, bound).await
}

/// The statement whose index holds the fewest jobs that the filter drops.
async fn list_statement(links: &Links, filter: &JobFilter) -> Result<&'static Statement> {
    if let (Some(_), Some(_)) = (&filter.owner, &filter.idempotency_key) {
        return Ok(&sql::LIST_JOBS_OF_KEY);
    }
    if let Some(owner) = &filter.owner {
        let bound = vec![value(&**owner), value(FEW_JOBS)];
        if number(links, &sql::COUNT_JOBS_OF_OWNER, bound).await? < FEW_JOBS {
            return Ok(&sql::LIST_JOBS_OF_OWNER);
        }
    }
    Ok(match filter.state {
        Some(JobState::Queued) => &sql::LIST_JOBS_QUEUED,
        Some(JobState::Running) => &sql::LIST_JOBS_RUNNING,
        Some(JobState::Unknown) => &sql::LIST_JOBS_UNKNOWN,
        Some(JobState::Failed | JobState::Cancelled) => &sql::LIST_JOBS_BY_RARER_STATE,
        Some(JobState::Succeeded) | None => &sql::LIST_JOBS,
    })
}

pub(super) async fn list_attempts(links: &Links, filter: &AttemptFilter) -> Result<Vec<ListedAttempt>> {
    let statement = match filter.state {
        Some(AttemptStateName::Unknown) => &sql::LIST_ATTEMPTS_UNKNOWN,
        Some(AttemptStateName::Starting | AttemptStateName::Running) => &sql::LIST_ATTEMPTS_LIVE,
        Some(
            AttemptStateName::Succeeded
            | AttemptStateName::Failed
            | AttemptStateName::Superseded
            | AttemptStateName::Cancelled
            | AttemptStateName::Abandoned,
        )
        | None => &sql::LIST_ATTEMPTS,
    };
    let bound: Bound<'_> = vec![
        value(filter.before.map_or(Uuid::max(), |before| id(before.0))),
        value(filter.owner.as_deref()),
        value(filter.task.as_deref()),
        value(filter.provider.as_deref()),
        value(filter.state.map(AttemptStateName::as_str)),
        value(limit(filter.limit)),
    ];
    read_listed(&links.ask(statement, bound).await?)
}

pub(super) async fn unknown_longest(links: &Links, task: &Text, most: usize) -> Result<Vec<ListedAttempt>> {
    read_listed(&links.ask(&sql::UNKNOWN_LONGEST, vec![value(&**task), value(limit(most))]).await?)
}

pub(super) async fn queued_deadlines(links: &Links, most: usize) -> Result<Vec<(JobId, Millis)>> {
    let rows = links.ask(&sql::QUEUED_DEADLINES, vec![value(limit(most))]).await?;
    rows.iter().map(|row| Ok((JobId(id_at(row, 0)?), at(row, 1)?))).collect()
}

pub(super) async fn awaited_providers(links: &Links) -> Result<Vec<Text>> {
    let mut providers: Vec<Text> = Vec::new();
    loop {
        let last = providers.last().map_or("", |last| last);
        match links.ask(&sql::NEXT_PROVIDER, vec![value(last)]).await?.first() {
            Some(row) => providers.push(text_at(row, 0)?),
            None => return Ok(providers),
        }
    }
}

pub(super) async fn notices(links: &Links, job: JobId) -> Result<Vec<StoredNotice>> {
    let rows = links.ask(&sql::NOTICES, vec![value(id(job.0))]).await?;
    rows.iter().map(|row| read_notice(job, row)).collect()
}

pub(super) async fn census(links: &Links) -> Result<Census> {
    let cap = limit(usize::try_from(COUNT_CAP).unwrap_or(usize::MAX));
    let mut census = Census {
        queued_jobs: number(links, &sql::COUNT_QUEUED, vec![value(cap)]).await?.unsigned_abs(),
        unknown_attempts: number(links, &sql::COUNT_UNKNOWN, vec![value(cap)]).await?.unsigned_abs(),
        oldest_unknown_since: None,
        oldest_due: None,
    };
    let mut last: Text = "".into();
    while let Some(row) = links.ask(&sql::NEXT_UNKNOWN_TASK, vec![value(&*last)]).await?.first() {
        let since: Millis = at(row, 1)?;
        census.oldest_unknown_since = [census.oldest_unknown_since, Some(since)].into_iter().flatten().min();
        last = text_at(row, 0)?;
    }
    for provider in awaited_providers(links).await? {
        let bound = vec![value(&*provider), value(Vec::<Uuid>::new())];
        for row in links.ask(&sql::NEXT_DUE, bound).await? {
            census.oldest_due = [census.oldest_due, at(&row, 0)?].into_iter().flatten().min();
        }
    }
    Ok(census)
}

/// Looks whether what answers takes writes.
pub(super) async fn ping(links: &Links) -> Result<()> {
    let rows = links.ask(&sql::PING, Vec::new()).await?;
    match rows.first().map(|row| at::<&str>(row, 0)).transpose()? {
        Some("off") => Ok(()),
        Some(_) | None => Err(Fault::Away("the database takes no writes: it is a standby or read-only".into())),
    }
}

/// Jobs, the newest first.
async fn page(links: &Links, statement: &'static Statement, bound: Bound<'_>) -> Result<Vec<Arc<Record>>> {
    let rows = links.ask(statement, bound).await?;
    let known: Vec<Known> = read_jobs(&rows)?.into_values().collect::<Result<_>>()?;
    let mut records: Vec<Arc<Record>> = known.into_iter().map(|known| known.record).collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.job.id));
    Ok(records)
}

fn one(page: Vec<Arc<Record>>) -> Result<Option<Arc<Record>>> {
    Ok(page.into_iter().next())
}

async fn number(links: &Links, statement: &'static Statement, bound: Bound<'_>) -> Result<i64> {
    match links.ask(statement, bound).await?.first() {
        Some(row) => at(row, 0),
        None => Ok(0),
    }
}

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
