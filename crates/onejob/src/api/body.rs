//! What the API says: jobs and attempts as JSON. The one conversion at this border.

use std::time::Duration;

use jiff::Timestamp;
use onejob_core::{Attempt, AttemptState, Cause, Failover, GivenUp, Job, Millis, Resolution, Slot, Usage};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::id;
use crate::store::{ListedAttempt, Record, StoredNotice};

/// A job.
#[derive(Serialize)]
pub struct JobBody<'a> {
    id: String,
    owner: &'a str,
    idempotency_key: &'a str,
    task: Option<&'a str>,
    input: Option<&'a RawValue>,
    provider: Option<&'a str>,
    metadata: Option<&'a RawValue>,
    priority: i32,
    run_at: Option<String>,
    deadline: Option<String>,
    state: &'static str,
    version: u32,
    completed_by: Option<String>,
    result: Option<&'a RawValue>,
    error: Option<ErrorBody<'a>>,
    duplicates: u64,
    safe_new_key: bool,
    key_expires_at: Option<String>,
    created_at: String,
    updated_at: String,
    attempts: Vec<AttemptBody<'a>>,
}

/// An attempt.
#[derive(Serialize)]
pub struct AttemptBody<'a> {
    id: String,
    number: u32,
    provider: &'a str,
    state: &'static str,
    cause: Option<&'static str>,
    started_at: String,
    finished_at: Option<String>,
    unknown_since: Option<String>,
    handle: Option<&'a str>,
    failure: Option<FailureBody<'a>>,
    resolution: Option<ResolutionBody<'a>>,
    model: Option<&'a str>,
    usage: Option<UsageBody>,
    certificate: Option<String>,
    by_hand: bool,
}

/// An attempt in a list.
#[derive(Serialize)]
pub struct ListedAttemptBody<'a> {
    job_id: String,
    owner: &'a str,
    task: &'a str,
    #[serde(flatten)]
    attempt: AttemptBody<'a>,
}

/// A page of jobs.
#[derive(Serialize)]
pub struct JobList<'a> {
    /// Newest first.
    pub jobs: Vec<JobBody<'a>>,
    /// Where the next page begins; `null` on the last.
    pub next_cursor: Option<String>,
}

/// A page of attempts.
#[derive(Serialize)]
pub struct AttemptList<'a> {
    /// Newest first.
    pub attempts: Vec<ListedAttemptBody<'a>>,
    /// Where the next page begins; `null` on the last.
    pub next_cursor: Option<String>,
}

/// The notices of a job.
#[derive(Serialize)]
pub struct NoticeList<'a> {
    /// Oldest first.
    pub notices: Vec<NoticeBody<'a>>,
}

/// A noteworthy fact.
#[derive(Serialize)]
pub struct NoticeBody<'a> {
    at: String,
    kind: &'a str,
    attempt: Option<String>,
    detail: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    class: &'static str,
    status: Option<u16>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failover: Option<&'static str>,
}

#[derive(Serialize)]
struct FailureBody<'a> {
    class: &'static str,
    status: Option<u16>,
    message: &'a str,
}

#[derive(Serialize)]
struct ResolutionBody<'a> {
    by: &'static str,
    at: String,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct UsageBody {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// A moment as RFC 3339 in UTC with milliseconds.
pub fn time(at: Millis) -> String {
    match Timestamp::from_millisecond(at) {
        Ok(at) => format!("{at:.3}"),
        // Beyond year 9999 there is no RFC 3339: say so rather than something false.
        Err(_) => "9999-12-31T23:59:59.999Z".into(),
    }
}

/// Whether a job's age counts: it has ended, and so have its attempts.
fn may_go(job: &Job) -> bool {
    job.state().is_terminal() && !job.attempts.iter().any(|attempt| attempt.state.is_open())
}

/// A stored JSON text as it is. It was written by us; one that is damaged becomes `null`.
fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}

impl<'a> JobBody<'a> {
    /// A job whose key is kept for `retention` after its end (R12).
    pub fn of(record: &'a Record, retention: Duration) -> JobBody<'a> {
        let job = &record.job;
        let (result, error) = match &job.slot {
            Slot::Filled { result, .. } => (raw(result), None),
            Slot::GivenUp(given_up) => (None, Some(ErrorBody::from(given_up))),
            Slot::Open { .. } | Slot::Cancelled => (None, None),
        };
        let intent = record.intent.as_ref();
        JobBody {
            id: id::job_text(job.id),
            owner: &record.owner,
            idempotency_key: &record.idempotency_key,
            task: intent.map(|i| &*i.task),
            input: intent.and_then(|i| raw(&i.input)),
            provider: intent.and_then(|i| i.provider.as_deref()),
            metadata: raw(&record.metadata),
            priority: record.priority,
            run_at: record.run_at.map(time),
            deadline: job.deadline.map(time),
            state: job.state().as_str(),
            version: job.version,
            completed_by: job.completed_by().map(id::attempt_text),
            result,
            error,
            duplicates: record.duplicates,
            safe_new_key: job.is_safe_to_ask_again(),
            key_expires_at: may_go(job)
                .then(|| time(record.updated_at.saturating_add(retention.as_millis() as Millis))),
            created_at: time(record.created_at),
            updated_at: time(record.updated_at),
            attempts: job.attempts.iter().map(AttemptBody::from).collect(),
        }
    }
}

impl<'a> From<&'a Attempt> for AttemptBody<'a> {
    fn from(attempt: &'a Attempt) -> AttemptBody<'a> {
        let (cause, since) = match &attempt.state {
            AttemptState::Unknown { cause, since } => (Some(Cause::as_str(*cause)), Some(time(*since))),
            AttemptState::Starting
            | AttemptState::Running
            | AttemptState::Succeeded { .. }
            | AttemptState::Failed { .. }
            | AttemptState::Superseded { .. }
            | AttemptState::Cancelled { .. }
            | AttemptState::Abandoned { .. } => (None, None),
        };
        let failure = match &attempt.state {
            AttemptState::Failed { failure, .. } => {
                Some(FailureBody { class: failure.class.as_str(), status: failure.status, message: &failure.message })
            }
            AttemptState::Starting
            | AttemptState::Running
            | AttemptState::Unknown { .. }
            | AttemptState::Succeeded { .. }
            | AttemptState::Superseded { .. }
            | AttemptState::Cancelled { .. }
            | AttemptState::Abandoned { .. } => None,
        };
        AttemptBody {
            id: id::attempt_text(attempt.id),
            number: attempt.number,
            provider: &attempt.provider,
            state: attempt.state.name().as_str(),
            cause,
            started_at: time(attempt.started_at),
            finished_at: attempt.state.finished_at().map(time),
            unknown_since: since,
            handle: attempt.handle.as_deref(),
            failure,
            resolution: attempt.state.resolution().map(ResolutionBody::from),
            model: attempt.seen.model.as_deref(),
            usage: attempt.seen.usage.map(UsageBody::from),
            certificate: attempt.certificate.map(id::certificate_text),
            by_hand: attempt.by_hand,
        }
    }
}

impl<'a> From<&'a ListedAttempt> for ListedAttemptBody<'a> {
    fn from(listed: &'a ListedAttempt) -> ListedAttemptBody<'a> {
        ListedAttemptBody {
            job_id: id::job_text(listed.job),
            owner: &listed.owner,
            task: &listed.task,
            attempt: AttemptBody::from(&listed.attempt),
        }
    }
}

impl<'a> From<&'a StoredNotice> for NoticeBody<'a> {
    fn from(notice: &'a StoredNotice) -> NoticeBody<'a> {
        NoticeBody {
            at: time(notice.at),
            kind: &notice.kind,
            attempt: notice.attempt.map(id::attempt_text),
            detail: raw(&notice.detail),
        }
    }
}

impl<'a> From<&'a GivenUp> for ErrorBody<'a> {
    fn from(given_up: &'a GivenUp) -> ErrorBody<'a> {
        ErrorBody {
            class: given_up.class.as_str(),
            status: given_up.status,
            message: &given_up.message,
            failover: match given_up.failover {
                Failover::NotApplicable => None,
                Failover::NoVerifiedProvider => Some("no_verified_provider"),
            },
        }
    }
}

impl<'a> From<&'a Resolution> for ResolutionBody<'a> {
    fn from(resolution: &'a Resolution) -> ResolutionBody<'a> {
        ResolutionBody { by: resolution.by.as_str(), at: time(resolution.at), reason: resolution.reason.as_deref() }
    }
}

impl From<Usage> for UsageBody {
    fn from(usage: Usage) -> UsageBody {
        UsageBody { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }
    }
}
