//! Liveness, readiness, metrics.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Api;
use super::jobs::answer;
use super::problem::{Kind, Problem};
use crate::engine::{Stage, now};

/// `GET /healthz`: the process answers.
pub(crate) async fn alive() -> Response {
    answer(StatusCode::OK, &json!({ "status": "alive" }))
}

/// `GET /readyz`: it takes work, and its store can be written.
pub(crate) async fn ready(State(api): State<Api>) -> Result<Response, Problem> {
    if api.engine.stage() != Stage::Serving {
        return Err(Problem::new(Kind::Overloaded, "this node is stopping"));
    }
    api.engine.store().ping().await?;
    Ok(answer(StatusCode::OK, &json!({ "status": "ready" })))
}

/// `GET /metrics`: Prometheus text.
pub(crate) async fn metrics(State(api): State<Api>) -> Response {
    let store = api.engine.store();
    // Without the store the counters are worth as much as ever.
    let census = store.census().await.ok();
    match api.engine.metrics().render(census, store.work(), api.engine.in_flight(), now()) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => Problem::new(Kind::Internal, "the metrics could not be written").into_response(),
    }
}
