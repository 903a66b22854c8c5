//! The routes under `/v1/attempts`.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use onejob_core::AttemptStateName;

use super::Api;
use super::body::{AttemptList, ListedAttemptBody};
use super::jobs::{answer, told};
use super::problem::{Kind, Problem};
use super::read::{self, Envelope, Id, Query, wrong};
use crate::engine::{Resolved, Word};
use crate::id;
use crate::store::AttemptFilter;

/// `GET /v1/attempts`
pub(crate) async fn list(State(api): State<Api>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let mut query = Query::parse(query.as_deref());
    let limit = query.limit()?;
    let states = "starting, running, unknown, succeeded, failed, superseded, cancelled or abandoned";
    let filter = AttemptFilter {
        owner: query.text("owner")?,
        task: query.text("task")?,
        provider: query.text("provider")?,
        state: query.parsed("state", states, AttemptStateName::parse)?,
        before: query.parsed("cursor", "the next_cursor of an earlier page", id::parse_attempt)?,
        limit: limit + 1,
    };
    query.done()?;
    let mut listed = api.engine.list_attempts(filter).await?;
    let more = listed.len() > limit;
    listed.truncate(limit);
    let next_cursor = listed.last().filter(|_| more).map(|l| id::attempt_text(l.attempt.id));
    let attempts = listed.iter().map(ListedAttemptBody::from).collect();
    Ok(answer(StatusCode::OK, &AttemptList { attempts, next_cursor }))
}

/// `POST /v1/attempts/{id}/resolve`
pub(crate) async fn resolve(State(api): State<Api>, Id(id): Id, request: Request<Body>) -> Result<Response, Problem> {
    let (_, bytes) = read::json_body(&api.engine.config().server, request).await?;
    let mut envelope = Envelope::parse(&bytes)?;
    let outcome = envelope.required_text("outcome")?;
    let result = envelope.any("result");
    let reason = envelope.required_text("reason")?;
    envelope.done()?;
    let word = match (&*outcome, result) {
        ("succeeded", Some(result)) => Word::Succeeded(result),
        ("succeeded", None) => return Err(wrong("result", "there when the outcome is succeeded")),
        ("failed" | "abandoned", Some(result)) if !result.is_null() => {
            return Err(wrong("result", "absent unless the outcome is succeeded"));
        }
        ("failed", _) => Word::Failed,
        ("abandoned", _) => Word::Abandoned,
        _ => return Err(wrong("outcome", "succeeded, failed or abandoned")),
    };
    let unknown_id = || {
        Problem::new(Kind::NoSuchAttempt, format!("there is no attempt {:?}", id.chars().take(40).collect::<String>()))
    };
    let attempt = id::parse_attempt(&id).ok_or_else(unknown_id)?;
    let record = api.engine.store().job_of_attempt(attempt).await?.ok_or_else(unknown_id)?;
    match api.engine.resolve(&record, attempt, word, reason).await? {
        Resolved::Told(applied) => told(&api, applied, &id),
        Resolved::BreaksContract(violation) => Err(Problem::new(Kind::InvalidResult, violation.to_string())
            .with("pointer", format!("/result{}", violation.pointer))),
    }
}
