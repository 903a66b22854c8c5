//! Errors as RFC 9457 problem documents: one table.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::engine::Invalid;
use crate::intent::KeyError;
use crate::store::StoreError;

/// Where the types live.
pub const TYPE_PREFIX: &str = "https://onejob.dev/problems/";

/// Seconds after which a client should come back to a node that cannot take its request now.
const COME_BACK_AFTER_S: &str = "1";

/// Every kind of error that the API answers with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The header `Idempotency-Key` is missing.
    KeyMissing,
    /// The header `Idempotency-Key` is malformed.
    KeyInvalid,
    /// The key names another intent.
    Conflict,
    /// The key's job was pruned after its retention.
    KeyExpired,
    /// The body, a query parameter or a header is wrong.
    InvalidRequest,
    /// The input does not match the task's schema.
    InvalidInput,
    /// An operator's result does not pass the task's contract.
    InvalidResult,
    /// No such task is configured.
    NoSuchTask,
    /// No such job, or not this caller's.
    NoSuchJob,
    /// No such attempt, or not this caller's.
    NoSuchAttempt,
    /// No such page.
    NotFound,
    /// The page exists and does not take this method.
    MethodNotAllowed,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON.
    UnsupportedMediaType,
    /// The body did not come in time.
    BodyTimeout,
    /// An attempt may still be alive.
    AttemptInFlight,
    /// The job has ended.
    JobClosed,
    /// The attempt has ended.
    AttemptClosed,
    /// The provider has not proved itself for this task.
    ProviderNotVerified,
    /// The task has no contract.
    NoContract,
    /// The contract is being verified at this provider already.
    VerificationInFlight,
    /// This build cannot do it yet.
    NotSupported,
    /// Too many requests are open, no slot is free, or the node is stopping.
    Overloaded,
    /// The store is away.
    StoreUnavailable,
    /// The store did not say whether it committed.
    OutcomeUnknown,
    /// A fault of ours.
    Internal,
}

impl Kind {
    /// Every kind, for the documents and their tests.
    pub const ALL: [Kind; 26] = [
        Kind::KeyMissing,
        Kind::KeyInvalid,
        Kind::Conflict,
        Kind::KeyExpired,
        Kind::InvalidRequest,
        Kind::InvalidInput,
        Kind::InvalidResult,
        Kind::NoSuchTask,
        Kind::NoSuchJob,
        Kind::NoSuchAttempt,
        Kind::NotFound,
        Kind::MethodNotAllowed,
        Kind::TooLarge,
        Kind::UnsupportedMediaType,
        Kind::BodyTimeout,
        Kind::AttemptInFlight,
        Kind::JobClosed,
        Kind::AttemptClosed,
        Kind::ProviderNotVerified,
        Kind::NoContract,
        Kind::VerificationInFlight,
        Kind::NotSupported,
        Kind::Overloaded,
        Kind::StoreUnavailable,
        Kind::OutcomeUnknown,
        Kind::Internal,
    ];

    /// The table: name, status, title.
    pub fn row(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Kind::KeyMissing => ("idempotency-key-missing", S::BAD_REQUEST, "The header Idempotency-Key is missing"),
            Kind::KeyInvalid => ("idempotency-key-invalid", S::BAD_REQUEST, "The header Idempotency-Key is malformed"),
            Kind::Conflict => ("idempotency-conflict", S::CONFLICT, "The key already names another intent"),
            Kind::KeyExpired => ("idempotency-key-expired", S::GONE, "The key is past its retention"),
            Kind::InvalidRequest => ("invalid-request", S::BAD_REQUEST, "The request is wrong"),
            Kind::InvalidInput => ("invalid-input", S::BAD_REQUEST, "The input does not match the task's schema"),
            Kind::InvalidResult => ("invalid-result", S::BAD_REQUEST, "The result does not pass the task's contract"),
            Kind::NoSuchTask => ("no-such-task", S::NOT_FOUND, "No such task is configured"),
            Kind::NoSuchJob => ("no-such-job", S::NOT_FOUND, "No such job"),
            Kind::NoSuchAttempt => ("no-such-attempt", S::NOT_FOUND, "No such attempt"),
            Kind::NotFound => ("not-found", S::NOT_FOUND, "No such page"),
            Kind::MethodNotAllowed => {
                ("method-not-allowed", S::METHOD_NOT_ALLOWED, "This page does not take that method")
            }
            Kind::TooLarge => ("body-too-large", S::PAYLOAD_TOO_LARGE, "The body is too large"),
            Kind::UnsupportedMediaType => {
                ("unsupported-media-type", S::UNSUPPORTED_MEDIA_TYPE, "The body must be application/json")
            }
            Kind::BodyTimeout => ("body-timeout", S::REQUEST_TIMEOUT, "The body did not come in time"),
            Kind::AttemptInFlight => ("attempt-in-flight", S::CONFLICT, "An attempt may still be alive"),
            Kind::JobClosed => ("job-closed", S::CONFLICT, "The job has ended"),
            Kind::AttemptClosed => ("attempt-closed", S::CONFLICT, "The attempt has ended"),
            Kind::ProviderNotVerified => {
                ("provider-not-verified", S::CONFLICT, "The provider has not proved itself for this task")
            }
            Kind::NoContract => ("no-contract", S::CONFLICT, "The task has no contract"),
            Kind::VerificationInFlight => {
                ("verification-in-flight", S::CONFLICT, "The contract is being verified there already")
            }
            Kind::NotSupported => ("not-supported", S::NOT_IMPLEMENTED, "This build cannot do that yet"),
            Kind::Overloaded => ("overloaded", S::SERVICE_UNAVAILABLE, "This node cannot take the request now"),
            Kind::StoreUnavailable => ("store-unavailable", S::SERVICE_UNAVAILABLE, "The store is away"),
            Kind::OutcomeUnknown => {
                ("outcome-unknown", S::SERVICE_UNAVAILABLE, "The store did not say whether it committed")
            }
            Kind::Internal => ("internal", S::INTERNAL_SERVER_ERROR, "A fault of ours"),
        }
    }

    /// Nothing is known to be wrong with the request: it may come again, with the same key.
    fn may_come_again(self) -> bool {
        matches!(self, Kind::Overloaded | Kind::StoreUnavailable | Kind::OutcomeUnknown)
    }
}

/// One error, ready to be sent.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    kind: Kind,
    detail: String,
    members: Map<String, Value>,
}

impl Problem {
    /// An error with a sentence that says what was wrong and what was expected.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Problem {
        Problem { kind, detail: detail.into(), members: Map::new() }
    }

    /// The same with one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.members.insert(name.into(), value.into());
        self
    }

    /// The document.
    pub fn document(&self) -> Value {
        let (name, status, title) = self.kind.row();
        let mut document = json!({
            "type": format!("{TYPE_PREFIX}{name}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail,
        });
        if let Value::Object(members) = &mut document {
            if self.kind.may_come_again() {
                members.insert("retry_with_same_key".into(), true.into());
            }
            members.extend(self.members.clone());
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (_, status, _) = self.kind.row();
        let mut response = (status, self.document().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.kind.may_come_again() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(COME_BACK_AFTER_S));
        }
        if matches!(self.kind, Kind::TooLarge | Kind::BodyTimeout) {
            // The rest of the body is not worth reading.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        let text = invalid.to_string();
        match invalid {
            Invalid::TooLarge { .. } => Problem::new(Kind::TooLarge, text),
            Invalid::Key(KeyError::Missing) => Problem::new(
                Kind::KeyMissing,
                "send one header Idempotency-Key: one key per intent, the same at every retry",
            ),
            Invalid::Key(KeyError::Invalid(why)) => Problem::new(Kind::KeyInvalid, why),
            Invalid::Json(_) => Problem::new(Kind::InvalidRequest, text),
            Invalid::Member { name, .. } => {
                Problem::new(Kind::InvalidRequest, text).with("pointer", format!("/{name}"))
            }
            Invalid::NoSuchTask(_) => Problem::new(Kind::NoSuchTask, text),
            Invalid::Input(violation) => Problem::new(Kind::InvalidInput, violation.to_string())
                .with("pointer", format!("/input{}", violation.pointer)),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match error {
            StoreError::Unavailable(why) => {
                tracing::warn!(why, "the store is away");
                Problem::new(
                    Kind::StoreUnavailable,
                    "nothing was written; send the same request again with the same key",
                )
            }
            StoreError::OutcomeUnknown(why) => {
                tracing::warn!(why, "the store did not say whether it committed");
                Problem::new(Kind::OutcomeUnknown, "send the same request again with the same key")
            }
            StoreError::Refused(why) => {
                tracing::error!(why, "the store refused what the rules allow");
                Problem::new(Kind::Internal, "nothing was written; the fault is in this server's log")
            }
        }
    }
}
