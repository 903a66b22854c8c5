//! The routes of verification: contracts, providers.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use onejob_core::Millis;
use serde_json::{Map, Value, json};

use super::Api;
use super::body::time;
use super::jobs::answer;
use super::problem::{Kind, Problem};
use super::read::{self, Envelope, Query};
use crate::config::{Config, ProviderConfig, ProviderKind};
use crate::engine::{AskedBy, Standing, Verified};
use crate::id;
use crate::json::parse_stored;
use crate::store::{Certificate, Checked};

/// `POST /v1/contracts/verify`
pub(crate) async fn verify(State(api): State<Api>, request: Request<Body>) -> Result<Response, Problem> {
    let (_, bytes) = read::json_body(&api.engine.config().server, request).await?;
    let mut envelope = Envelope::parse(&bytes)?;
    let task = envelope.required_text("task")?;
    let provider = envelope.required_text("provider")?;
    envelope.done()?;
    match api.engine.verify(&task, &provider, AskedBy::Request).await? {
        Verified::Done(report, certificate) => {
            let mut body = report.to_json();
            let certificate = certificate.map_or(Value::Null, |certificate| certificate_json(&certificate));
            body.insert("certificate".into(), certificate);
            Ok(answer(StatusCode::OK, &body))
        }
        Verified::InFlight { until } => Err(Problem::new(
            Kind::VerificationInFlight,
            "this contract is being verified at this provider already; `GET /v1/contracts` says how far it is",
        )
        .with("task", &*task)
        .with("provider", &*provider)
        .with("until", time(until))),
        Verified::NoSuchTask => Err(Problem::new(Kind::NoSuchTask, format!("the task {task:?} is not configured"))),
        Verified::NoSuchProvider => Err(read::wrong("provider", "one of the task's providers")),
        Verified::NoContract => Err(Problem::new(
            Kind::NoContract,
            format!("there is no [tasks.{task}.contract]: nothing says what a provider must prove"),
        )
        .with("task", &*task)),
        Verified::NotSupported => Err(Problem::new(
            Kind::NotSupported,
            format!("nothing is ever sent to the provider {provider:?}: there is nothing to verify"),
        )),
        Verified::Stopping => Err(Problem::new(Kind::Overloaded, "this node is stopping")),
    }
}

/// `GET /v1/contracts`
pub(crate) async fn list(State(api): State<Api>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let mut query = Query::parse(query.as_deref());
    let (task, provider) = (query.text("task")?, query.text("provider")?);
    query.done()?;
    let now = api.engine.now();
    let standings = api.engine.contracts().await?;
    let wanted = |standing: &&Standing| {
        task.as_ref().is_none_or(|task| standing.task.name == *task)
            && provider.as_ref().is_none_or(|provider| standing.provider.name == *provider)
    };
    let contracts: Vec<Value> = standings.iter().filter(wanted).map(|standing| standing_json(standing, now)).collect();
    Ok(answer(StatusCode::OK, &json!({"contracts": contracts})))
}

/// `GET /v1/providers`
pub(crate) async fn providers(State(api): State<Api>) -> Response {
    let config = api.engine.config();
    let providers: Vec<Value> = config.providers.values().map(|provider| provider_json(config, provider)).collect();
    answer(StatusCode::OK, &json!({"providers": providers}))
}

fn provider_json(config: &Config, provider: &ProviderConfig) -> Value {
    let (kind, model) = match &provider.kind {
        ProviderKind::Http(http) => ("http", http.settings.get("model").cloned()),
        ProviderKind::Simulated(_) => ("simulated", None),
        ProviderKind::Worker => ("worker", None),
    };
    let tasks = config.tasks.values().filter(|task| task.providers.contains(&provider.name));
    json!({
        "name": &*provider.name,
        "kind": kind,
        "model": model,
        "concurrency": provider.concurrency,
        "tasks": tasks.map(|task| &*task.name).collect::<Vec<&str>>(),
    })
}

fn standing_json(standing: &Standing, now: Millis) -> Value {
    let Standing { task, provider, certificate, is_current, checked, progress } = standing;
    let valid = *is_current && certificate.as_ref().is_some_and(|certificate| certificate.holds(now));
    let is_primary = task.providers.first() == Some(&provider.name);
    let why_not = if valid { None } else { Some(why_not(standing, now)) };
    json!({
        "task": &*task.name,
        "provider": &*provider.name,
        "primary": is_primary,
        "valid": valid,
        "valid_until": certificate.as_ref().filter(|_| valid).map(|certificate| time(certificate.valid_until)),
        "why_not": why_not,
        "certificate": certificate.as_ref().map(certificate_json),
        "running": running_json(checked.as_ref(), *progress, now),
        "last": checked.as_ref().and_then(last_json),
    })
}

/// Why nothing may fail over to a provider, in a sentence.
fn why_not(standing: &Standing, now: Millis) -> String {
    let failed = standing.checked.as_ref().and_then(|checked| checked.last.as_ref()).filter(|last| !last.passed);
    match &standing.certificate {
        None if failed.is_some() => "the last verification failed".to_owned(),
        None => "it was never verified".to_owned(),
        Some(_) if !standing.is_current => {
            "the task's contract or the provider's definition changed since it was verified".to_owned()
        }
        Some(certificate) => match &certificate.suspended {
            Some(suspended) => format!("suspended since {}: {}", time(suspended.at), suspended.because),
            None if now >= certificate.valid_until => "the certificate has ended".to_owned(),
            None => "the certificate does not hold".to_owned(),
        },
    }
}

/// A certificate as the API has it.
fn certificate_json(certificate: &Certificate) -> Value {
    let suspended = certificate.suspended.as_ref();
    json!({
        "id": id::certificate_text(certificate.id),
        "task": &*certificate.task,
        "provider": &*certificate.provider,
        "contract_digest": certificate.contract_digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "model": certificate.model.as_deref(),
        "issued_at": time(certificate.issued_at),
        "valid_until": time(certificate.valid_until),
        "suspended": suspended.map(|suspended| json!({"at": time(suspended.at), "because": &*suspended.because})),
        "detail": parse_stored(&certificate.detail).unwrap_or(Value::Null),
    })
}

fn running_json(checked: Option<&Checked>, progress: Option<(u32, u32)>, now: Millis) -> Option<Value> {
    let running = checked?.running.filter(|running| now < running.until)?;
    let mut body = Map::new();
    body.insert("since".into(), time(running.since).into());
    // Only the node that runs it knows how far it is.
    body.insert("done".into(), progress.map(|(done, _)| done).into());
    body.insert("total".into(), progress.map(|(_, total)| total).into());
    Some(body.into())
}

fn last_json(checked: &Checked) -> Option<Value> {
    let last = checked.last.as_ref()?;
    Some(json!({
        "passed": last.passed,
        "started_at": time(last.started_at),
        "ended_at": time(last.ended_at),
        "certificate": last.certificate.map(id::certificate_text),
        "report": parse_stored(&last.report).unwrap_or(Value::Null),
    }))
}
