//! The routes under `/v1/jobs`, and the dry run of a fingerprint.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onejob_core::{AttemptState, Illegal, JobId, JobState, Slot, Text};
use serde::Serialize;
use serde_json::{Value, json};

use super::Api;
use super::body::{AttemptBody, JobBody, JobList, NoticeBody, NoticeList};
use super::layers::About;
use super::problem::{Kind, Problem};
use super::read::{self, Envelope, Id, Query, wrong};
use crate::engine::door::{self, Wish};
use crate::engine::{ByHand, Invalid, Order, Ordered, Refusal};
use crate::id;
use crate::intent;
use crate::json;
use crate::store::{Applied, JobFilter, Record, Submitted, Tombstone};

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `POST /v1/jobs`
pub(crate) async fn submit(State(api): State<Api>, request: Request<Body>) -> Result<Response, Problem> {
    let server = &api.engine.config().server;
    let (headers, bytes) = read::json_body(server, request).await?;
    let key = key_of(headers.get_all("idempotency-key").iter().map(HeaderValue::as_bytes))?;
    let wait = read::prefer_wait(&headers, server.max_wait)?;
    let (order, input) = order(&api, key, &bytes)?;
    let pinned = order.intent.provider.clone();
    let task = order.intent.task.clone();
    match api.engine.submit(order).await? {
        Ordered::Stored(Submitted::New(record)) => {
            let record = waited(&api, record, wait).await?;
            Ok(job_answer(&api, StatusCode::CREATED, &record, Some("false")))
        }
        Ordered::Stored(Submitted::Same(record)) => {
            let record = waited(&api, record, wait).await?;
            Ok(job_answer(&api, StatusCode::OK, &record, Some("true")))
        }
        Ordered::Stored(Submitted::OtherIntent(record)) => Err(conflict(&record, (&task, &input, pinned.as_deref()))),
        Ordered::Stored(Submitted::Expired(tombstone)) => Err(expired(&tombstone)),
        Ordered::Refused(Refusal::Stopping) => Err(Problem::new(Kind::Overloaded, "this node is stopping")),
        Ordered::Refused(Refusal::NoSuchTask) => Err(Invalid::NoSuchTask(task).into()),
        Ordered::Refused(Refusal::NotSupported) => Err(Problem::new(
            Kind::NotSupported,
            format!(
                "the provider of the task {task:?} is of a kind that this build cannot call yet; `onejob check` says more"
            ),
        )),
    }
}

/// `GET /v1/jobs/{id}`
pub(crate) async fn show(State(api): State<Api>, Id(id): Id, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let job = job_id(&id)?;
    let mut query = Query::parse(query.as_deref());
    let wait = query.parsed("wait", "a duration such as 30s", read::duration)?;
    query.done()?;
    let record = match wait {
        None => api.engine.job(job).await?,
        Some(wait) => api.engine.wait(job, wait.min(api.engine.config().server.max_wait)).await?,
    };
    let record = record.ok_or_else(|| no_such_job(&id))?;
    Ok(job_answer(&api, StatusCode::OK, &record, None))
}

/// `GET /v1/jobs`
pub(crate) async fn list(State(api): State<Api>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let mut query = Query::parse(query.as_deref());
    let limit = query.limit()?;
    let filter = JobFilter {
        owner: query.text("owner")?,
        idempotency_key: query.text("idempotency_key")?,
        task: query.text("task")?,
        state: query.parsed("state", "queued, running, unknown, succeeded, failed or cancelled", JobState::parse)?,
        before: query.parsed("cursor", "the next_cursor of an earlier page", id::parse_job)?,
        limit: limit + 1,
    };
    query.done()?;
    let retention = api.engine.config().server.retention;
    let mut records = api.engine.list_jobs(filter).await?;
    let more = records.len() > limit;
    records.truncate(limit);
    let next_cursor = records.last().filter(|_| more).map(|r| id::job_text(r.job.id));
    Ok(answer(
        StatusCode::OK,
        &JobList { jobs: records.iter().map(|r| JobBody::of(r, retention)).collect(), next_cursor },
    ))
}

/// `POST /v1/jobs/{id}/cancel`
pub(crate) async fn cancel(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    let applied = api.engine.cancel(job_id(&id)?).await?;
    told(&api, applied, &id)
}

/// `POST /v1/jobs/cancel`
pub(crate) async fn cancel_by_key(State(api): State<Api>, request: Request<Body>) -> Result<Response, Problem> {
    let (_, bytes) = read::json_body(&api.engine.config().server, request).await?;
    let mut envelope = Envelope::parse(&bytes)?;
    let owner = envelope.owner()?;
    let key = envelope.required_text("idempotency_key")?;
    envelope.done()?;
    let key = key_of([key.as_bytes()])?;
    let applied = api.engine.cancel_by_key(owner, key).await?;
    told(&api, applied, "")
}

/// `POST /v1/jobs/{id}/retry`
pub(crate) async fn retry(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    let record = found(&api, &id).await?;
    match api.engine.retry(&record).await? {
        ByHand::Not(applied) => told(&api, applied, &id),
        ByHand::Started(record) => Ok(job_answer(&api, StatusCode::OK, &record, None)),
        ByHand::NoSuchProvider(why) => Err(Problem::new(Kind::NoSuchTask, why)),
        ByHand::NoRoom => Err(no_room()),
    }
}

/// `POST /v1/jobs/{id}/attempts`
pub(crate) async fn start_attempt(
    State(api): State<Api>,
    Id(id): Id,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (_, bytes) = read::json_body(&api.engine.config().server, request).await?;
    let mut envelope = Envelope::parse(&bytes)?;
    let provider = envelope.text("provider")?;
    let force = envelope.flag("force")?;
    envelope.done()?;
    let record = found(&api, &id).await?;
    match api.engine.start_by_hand(&record, provider.as_deref(), force).await? {
        ByHand::Started(record) => match record.job.attempts.last() {
            Some(attempt) => Ok(answer(StatusCode::CREATED, &AttemptBody::from(attempt))),
            None => Err(Problem::new(Kind::Internal, "a started attempt is missing")),
        },
        ByHand::Not(applied) => told(&api, applied, &id),
        ByHand::NoSuchProvider(why) if record.job.state().is_terminal() => {
            tracing::debug!(why, "asked of a closed job");
            Err(refused(&record, &Illegal::JobClosed(record.job.state())))
        }
        ByHand::NoSuchProvider(why) => Err(wrong("provider", &format!("a provider of the job's task: {why}"))),
        ByHand::NoRoom => Err(no_room()),
    }
}

/// `GET /v1/jobs/{id}/notices`
pub(crate) async fn notices(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    let record = found(&api, &id).await?;
    let notices = api.engine.store().notices(record.job.id).await?;
    Ok(answer(StatusCode::OK, &NoticeList { notices: notices.iter().map(NoticeBody::from).collect() }))
}

/// `POST /v1/fingerprint`
pub(crate) async fn fingerprint(State(api): State<Api>, request: Request<Body>) -> Result<Response, Problem> {
    let (_, bytes) = read::json_body(&api.engine.config().server, request).await?;
    let mut envelope = Envelope::parse(&bytes)?;
    let task = envelope.required_text("task")?;
    let input = envelope.any("input").ok_or_else(|| wrong("input", "there (any JSON value)"))?;
    let provider = envelope.text("provider")?;
    // The rest of a job's envelope may be there, so that a body can be tried as it is.
    for other in ["owner", "metadata", "priority", "run_at", "deadline"] {
        envelope.any(other);
    }
    envelope.done()?;
    let canonical = intent::canonical(&task, &input, provider.as_deref());
    let digest = intent::digest(canonical.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(answer(
        StatusCode::OK,
        &json!({ "fingerprint": hex, "version": intent::CANONICAL_VERSION, "canonical": canonical }),
    ))
}

fn order(api: &Api, key: Text, bytes: &[u8]) -> Result<(Order, Value), Problem> {
    let mut envelope = Envelope::parse(bytes)?;
    let owner = envelope.owner()?;
    let task = envelope.required_text("task")?;
    let input = envelope.any("input").ok_or_else(|| wrong("input", "there (any JSON value)"))?;
    let provider = envelope.text("provider")?;
    let metadata = envelope.object_text("metadata")?;
    let priority = envelope.integer("priority", door::PRIORITIES)?;
    let run_at = envelope.moment("run_at")?;
    let deadline = envelope.moment("deadline")?;
    envelope.done()?;
    let wish =
        Wish { owner, idempotency_key: key, task, input: &input, provider, metadata, priority, run_at, deadline };
    let order = door::order(api.engine.config(), wish)?;
    Ok((order, input))
}

fn key_of<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Text, Problem> {
    Ok(intent::parse_key(lines).map_err(Invalid::Key)?)
}

fn conflict(record: &Record, asked: (&str, &Value, Option<&str>)) -> Problem {
    let differs = match &record.intent {
        Some(intent) => match json::parse_stored(&intent.input) {
            Ok(input) => intent::differences((&intent.task, &input, intent.provider.as_deref()), asked),
            Err(_) => vec!["/input".into()],
        },
        None => Vec::new(),
    };
    Problem::new(Kind::Conflict, "this key already names another intent; a new intent needs a new key")
        .with("job", id::job_text(record.job.id))
        .with("state", record.job.state().as_str())
        .with("differs", differs)
}

/// R12: a key past retention is never free again.
fn expired(tombstone: &Tombstone) -> Problem {
    Problem::new(Kind::KeyExpired, "the job of this key is past its retention; a new intent needs a new key")
        .with("job", id::job_text(tombstone.job))
        .with("state", tombstone.state.as_str())
}

async fn waited(api: &Api, record: Arc<Record>, wait: Option<Duration>) -> Result<Arc<Record>, Problem> {
    match wait {
        None => Ok(record),
        // The job exists, and that is what must be said even if the store is away by now.
        Some(wait) => Ok(api.engine.wait(record.job.id, wait).await.ok().flatten().unwrap_or(record)),
    }
}

async fn found(api: &Api, id: &str) -> Result<Arc<Record>, Problem> {
    api.engine.job(job_id(id)?).await?.ok_or_else(|| no_such_job(id))
}

fn job_id(id: &str) -> Result<JobId, Problem> {
    id::parse_job(id).ok_or_else(|| no_such_job(id))
}

fn no_such_job(id: &str) -> Problem {
    Problem::new(Kind::NoSuchJob, format!("there is no job {:?}", id.chars().take(40).collect::<String>()))
}

fn no_room() -> Problem {
    Problem::new(Kind::Overloaded, "no slot to send became free in time, or this node is stopping")
}

/// What the store said to an event, as an answer.
pub(crate) fn told(api: &Api, applied: Applied, id: &str) -> Result<Response, Problem> {
    match applied {
        Applied::Done { record, .. } => Ok(job_answer(api, StatusCode::OK, &record, None)),
        Applied::Refused { record, why } => Err(refused(&record, &why)),
        Applied::NoSuchJob => Err(no_such_job(id)),
        Applied::Expired(tombstone) => Err(expired(&tombstone)),
    }
}

/// Why a rule forbids something, as a problem.
pub(crate) fn refused(record: &Record, why: &Illegal) -> Problem {
    let job = id::job_text(record.job.id);
    match why {
        Illegal::JobClosed(state) => {
            let hint = match state {
                JobState::Failed => "; POST …/retry opens a failed job again",
                JobState::Queued
                | JobState::Running
                | JobState::Unknown
                | JobState::Succeeded
                | JobState::Cancelled => "",
            };
            Problem::new(Kind::JobClosed, format!("the job is {}{hint}", state.as_str()))
                .with("job", job)
                .with("state", state.as_str())
        }
        Illegal::AttemptInFlight { attempt, state } => {
            let detail = format!("an attempt is {}; nothing new starts until it has ended", state.as_str());
            let problem = Problem::new(Kind::AttemptInFlight, detail)
                .with("job", job)
                .with("attempt", id::attempt_text(*attempt))
                .with("state", state.as_str());
            if let Some(AttemptState::Unknown { cause, .. }) = record.job.attempt(*attempt).map(|a| &a.state) {
                problem.with("cause", cause.as_str())
            } else {
                problem
            }
        }
        Illegal::AttemptClosed(state) => {
            Problem::new(Kind::AttemptClosed, format!("the attempt is {}: that never changes", state.as_str()))
                .with("job", job)
                .with("state", state.as_str())
        }
        Illegal::NotVerified { provider } => Problem::new(
            Kind::ProviderNotVerified,
            format!("{provider} holds no valid certificate for this task; an operator may send \"force\": true"),
        )
        .with("job", job)
        .with("provider", &**provider),
        Illegal::DeadlinePassed => {
            Problem::new(Kind::JobClosed, "the job's deadline has passed: no attempt starts after it")
                .with("job", job)
                .with("state", record.job.state().as_str())
        }
        Illegal::NoSuchAttempt => Problem::new(Kind::NoSuchAttempt, "the job has no such attempt").with("job", job),
        Illegal::NotDue | Illegal::JobOpen | Illegal::NotADecree => {
            let state = if matches!(record.job.slot, Slot::Open { .. }) { "open" } else { "closed" };
            Problem::new(Kind::Internal, format!("an event that no call can ask for met an {state} job ({why:?})"))
                .with("job", job)
        }
    }
}

fn job_answer(api: &Api, status: StatusCode, record: &Record, replayed: Option<&'static str>) -> Response {
    let mut response = answer(status, &JobBody::of(record, api.engine.config().server.retention));
    response.extensions_mut().insert(About(record.job.id));
    let headers = response.headers_mut();
    if let Some(replayed) = replayed {
        headers.insert(REPLAYED, HeaderValue::from_static(replayed));
        let location = format!("/v1/jobs/{}", id::job_text(record.job.id));
        if let Ok(location) = HeaderValue::from_str(&location) {
            headers.insert(header::LOCATION, location);
        }
    }
    response
}

/// A JSON answer.
pub(crate) fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            Problem::new(Kind::Internal, "the answer could not be written").into_response()
        }
    }
}
