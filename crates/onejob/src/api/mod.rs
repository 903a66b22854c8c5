//! The HTTP API. One line per route; a handler authenticates, reads, acts and answers, and one table
//! turns what went wrong into problem documents.

pub mod body;
pub mod problem;
mod read;
mod jobs;
mod attempts;
mod contracts;
mod operation;
mod layers;
mod server;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::engine::Engine;

pub use server::serve;

/// What handlers see.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) engine: Engine,
    pub(crate) open: layers::OpenRequests,
}

/// The router on one screen.
pub fn router(engine: Engine) -> Router {
    let open = layers::OpenRequests::new(engine.config().server.max_open_requests);
    let api = Api { engine, open };
    Router::new()
        .route("/v1/jobs", post(jobs::submit).get(jobs::list))
        .route("/v1/jobs/cancel", post(jobs::cancel_by_key))
        .route("/v1/jobs/{id}", get(jobs::show))
        .route("/v1/jobs/{id}/attempts", post(jobs::start_attempt))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/retry", post(jobs::retry))
        .route("/v1/jobs/{id}/notices", get(jobs::notices))
        .route("/v1/attempts", get(attempts::list))
        .route("/v1/attempts/{id}/resolve", post(attempts::resolve))
        .route("/v1/fingerprint", post(jobs::fingerprint))
        .route("/v1/providers", get(contracts::providers))
        .route("/v1/contracts", get(contracts::list))
        .route("/v1/contracts/verify", post(contracts::verify))
        .route("/healthz", get(operation::alive))
        .route("/readyz", get(operation::ready))
        .route("/metrics", get(operation::metrics))
        .fallback(layers::no_such_page)
        .method_not_allowed_fallback(layers::wrong_method)
        .layer(from_fn_with_state(api.clone(), layers::every_request))
        .with_state(api)
}
