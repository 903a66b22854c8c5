//! What every request passes: its id, the limit of open requests, the count and the log line.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::http::{HeaderName, HeaderValue, Method, Request, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use onejob_core::JobId;
use tokio::sync::Semaphore;
use tracing::debug;

use super::Api;
use super::problem::{Kind, Problem};
use crate::engine::metrics;
use crate::id::job_text;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id that is taken over from a caller, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The requests open now, bounded.
#[derive(Clone)]
pub(crate) struct OpenRequests(Arc<Semaphore>);

impl OpenRequests {
    pub(crate) fn new(most: usize) -> OpenRequests {
        OpenRequests(Arc::new(Semaphore::new(most)))
    }
}

/// A request's own id: the caller's, if it is plain, or a new one. Answered in the same header.
pub(crate) async fn request_id(mut request: Request<Body>, next: Next) -> Response {
    let given = request.headers().get(&REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    let id = match given {
        Some(id) => id.clone(),
        None => match HeaderValue::from_str(&uuid::Uuid::now_v7().simple().to_string()) {
            Ok(id) => id,
            Err(_) => HeaderValue::from_static("unknown"),
        },
    };
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The job that an answer is about, for the log line of its request.
#[derive(Clone)]
pub(crate) struct About(pub(crate) JobId);

/// Counts a request and logs it; the query and the body are nobody's business.
pub(crate) async fn count_and_log(State(api): State<Api>, request: Request<Body>, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| "none".to_owned(), |m| m.as_str().to_owned());
    let method = method_label(request.method());
    let id = request.headers().get(&REQUEST_ID).cloned();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let label = metrics::Request { route: format!("{method} {route}"), status };
    api.engine.metrics().request_seconds.get_or_create(&label).observe(began.elapsed().as_secs_f64());
    let id = id.as_ref().and_then(|id| id.to_str().ok());
    let job = response.extensions().get::<About>().map(|about| job_text(about.0));
    debug!(request = id, job, route = label.route, status, elapsed_ms = began.elapsed().as_millis() as u64, "request");
    response
}

/// A method as a label: a caller may send any word, and each label is kept for ever.
fn method_label(method: &Method) -> &'static str {
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS]
        .iter()
        .zip(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
        .find(|(known, _)| *known == method)
        .map_or("OTHER", |(_, label)| label)
}

/// More open requests than the limit get an answer at once, not a place in an endless row.
pub(crate) async fn limit_open_requests(State(api): State<Api>, request: Request<Body>, next: Next) -> Response {
    match api.open.0.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => {
            Problem::new(Kind::Overloaded, "too many requests are open (server.max_open_requests)").into_response()
        }
    }
}

/// Any path that is not there.
pub(crate) async fn no_such_page(uri: Uri) -> Problem {
    Problem::new(Kind::NotFound, format!("there is no {:?} here", uri.path().chars().take(80).collect::<String>()))
}

/// A path that is there, with a method that it does not take.
pub(crate) async fn wrong_method(uri: Uri) -> Problem {
    Problem::new(
        Kind::MethodNotAllowed,
        format!("{:?} takes another method", uri.path().chars().take(80).collect::<String>()),
    )
}
