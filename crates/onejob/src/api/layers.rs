//! What every request passes: its id, the limit of open requests, the count and the log line.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use onejob_core::JobId;
use tokio::sync::{Semaphore, SemaphorePermit};
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

    /// More open requests than the limit get an answer at once, not a place in an endless row. Health and metrics
    /// need no place.
    fn enter(&self, route: &str) -> Result<Option<SemaphorePermit<'_>>, Problem> {
        if !route.starts_with("/v1/") {
            return Ok(None);
        }
        let full = |_| Problem::new(Kind::Overloaded, "too many requests are open (server.max_open_requests)");
        self.0.try_acquire().map(Some).map_err(full)
    }
}

/// The job that an answer is about, for the log line of its request.
#[derive(Clone)]
pub(crate) struct About(pub(crate) JobId);

/// What every request passes: it has an id, a place among the open requests, and is counted and logged; the query
/// and the body are nobody's business.
pub(crate) async fn every_request(State(api): State<Api>, request: Request<Body>, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| "none".to_owned(), |m| m.as_str().to_owned());
    let method = method_label(request.method());
    let id = request_id(request.headers());
    let mut response = match api.open.enter(&route) {
        Ok(_place) => next.run(request).await,
        Err(full) => full.into_response(),
    };
    let status = response.status().as_u16();
    let label = metrics::Request { route: format!("{method} {route}"), status };
    api.engine.metrics().request_seconds.get_or_create(&label).observe(began.elapsed().as_secs_f64());
    let job = response.extensions().get::<About>().map(|about| job_text(about.0));
    let (request, elapsed_ms) = (id.to_str().ok(), began.elapsed().as_millis() as u64);
    debug!(request, job, route = label.route, status, elapsed_ms, "request");
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// A request's own id: the caller's, if it is plain, or a new one. Answered in the same header.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(&REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        let new = uuid::Uuid::now_v7().simple().to_string();
        HeaderValue::from_str(&new).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

/// A method as a label: a caller may send any word, and each label is kept for ever.
fn method_label(method: &Method) -> &'static str {
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS]
        .iter()
        .zip(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
        .find(|(known, _)| *known == method)
        .map_or("OTHER", |(_, label)| label)
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
