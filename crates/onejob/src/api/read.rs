//! Reading requests: bodies within their limits, strict JSON, members with their types, queries.

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::{SignedDuration, Timestamp};
use onejob_core::{Millis, Text};
use serde_json::{Map, Value};
use std::time::Duration;

use super::problem::{Kind, Problem};
use crate::config::Server;
use crate::engine::door;
use crate::json::{self, Duplicates};

/// Reads a body that must be JSON: size while streaming, then media type.
pub(crate) async fn json_body(server: &Server, request: Request<Body>) -> Result<(HeaderMap, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    // What says of itself that it is too large is not waited for.
    if body.size_hint().lower() > u64::try_from(server.max_body_bytes).unwrap_or(u64::MAX) {
        return Err(too_large(server));
    }
    let limited = Limited::new(body, server.max_body_bytes);
    let bytes = match tokio::time::timeout(server.body_timeout, limited.collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() || is_too_long(error.as_ref()) => {
            return Err(too_large(server));
        }
        Ok(Err(error)) => {
            return Err(Problem::new(Kind::InvalidRequest, format!("the body could not be read: {error}")));
        }
        Err(_) => {
            let limit = server.body_timeout;
            return Err(Problem::new(
                Kind::BodyTimeout,
                format!("a body must come within {limit:?} (server.body_timeout)"),
            ));
        }
    };
    if !is_json(&parts.headers) {
        return Err(Problem::new(Kind::UnsupportedMediaType, "send the header Content-Type: application/json"));
    }
    Ok((parts.headers, bytes))
}

fn too_large(server: &Server) -> Problem {
    let limit = server.max_body_bytes;
    Problem::new(Kind::TooLarge, format!("a body may have {limit} bytes (server.max_body_bytes)"))
}

fn is_too_long(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.downcast_ref::<LengthLimitError>().is_some() {
            return true;
        }
        source = cause.source();
    }
    false
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// A JSON object of a request, whose members are taken out one by one; what is left over is an error.
pub(crate) struct Envelope {
    members: Map<String, Value>,
}

impl Envelope {
    /// Parses strictly.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Envelope, Problem> {
        match json::parse(bytes, Duplicates::Refused, json::MAX_DEPTH) {
            Ok(Value::Object(members)) => Ok(Envelope { members }),
            Ok(_) => Err(wrong("", "a JSON object")),
            Err(error) => Err(Problem::new(Kind::InvalidRequest, format!("the body is not acceptable JSON: {error}"))),
        }
    }

    /// Any value, `null` included; `None` only if the member is absent.
    pub(crate) fn any(&mut self, name: &str) -> Option<Value> {
        self.members.shift_remove(name)
    }

    /// A string, or absent or `null`.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<Text>, Problem> {
        match self.any(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.into())),
            Some(_) => Err(wrong(name, "a string")),
        }
    }

    /// A string that must be there and not be empty.
    pub(crate) fn required_text(&mut self, name: &str) -> Result<Text, Problem> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(wrong(name, "a string that is not empty")),
        }
    }

    /// An owner: 1–255 bytes.
    pub(crate) fn owner(&mut self) -> Result<Text, Problem> {
        let owner = self.required_text("owner")?;
        door::check_owner(&owner)?;
        Ok(owner)
    }

    /// `true`, `false`, or absent.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Problem> {
        match self.any(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(wrong(name, "true or false")),
        }
    }

    /// An object as JSON text; `{}` if absent.
    pub(crate) fn object_text(&mut self, name: &str) -> Result<Text, Problem> {
        match self.any(name) {
            None | Some(Value::Null) => Ok("{}".into()),
            Some(object @ Value::Object(_)) => Ok(object.to_string().into()),
            Some(_) => Err(wrong(name, "an object")),
        }
    }

    /// A whole number within bounds; 0 if absent.
    pub(crate) fn integer(&mut self, name: &str, (from, to): (i32, i32)) -> Result<i32, Problem> {
        let expected = format!("a whole number from {from} to {to}");
        match self.any(name) {
            None | Some(Value::Null) => Ok(0),
            Some(Value::Number(number)) => match number.as_i64().and_then(|n| i32::try_from(n).ok()) {
                Some(n) if (from..=to).contains(&n) => Ok(n),
                _ => Err(wrong(name, &expected)),
            },
            Some(_) => Err(wrong(name, &expected)),
        }
    }

    /// A moment in RFC 3339, or absent.
    pub(crate) fn moment(&mut self, name: &str) -> Result<Option<Millis>, Problem> {
        match self.text(name)? {
            None => Ok(None),
            Some(text) => match text.parse::<Timestamp>().map(Timestamp::as_millisecond) {
                Ok(at) if door::is_moment(at) => Ok(Some(at)),
                _ => Err(wrong(name, door::A_MOMENT)),
            },
        }
    }

    /// Nothing may be left over.
    pub(crate) fn done(self) -> Result<(), Problem> {
        match self.members.keys().next() {
            None => Ok(()),
            Some(unknown) => {
                Err(Problem::new(Kind::InvalidRequest, format!("the member {unknown:?} is not known here"))
                    .with("pointer", pointer(unknown)))
            }
        }
    }
}

/// A member has the wrong shape.
pub(crate) fn wrong(member: &str, expected: &str) -> Problem {
    let what = if member.is_empty() { "the body".to_owned() } else { format!("the member {member:?}") };
    Problem::new(Kind::InvalidRequest, format!("{what} must be {expected}")).with("pointer", pointer(member))
}

fn pointer(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!("/{}", member.replace('~', "~0").replace('/', "~1")) }
}

/// The id in a path, as text. One that is no text is no id.
pub(crate) struct Id(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Id, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Id(id)),
            Err(_) => Err(Problem::new(Kind::NotFound, "the path is not UTF-8")),
        }
    }
}

/// The parameters of a query, taken out one by one; what is left over is an error.
pub(crate) struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Query {
        let parameters = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect();
        Query { parameters }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<Text>, Problem> {
        let mut found = self.parameters.extract_if(.., |(n, _)| n == name).map(|(_, value)| value);
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            // As in JSON: not every store can hold it.
            (Some(value), None) if value.contains('\0') => Err(wrong_parameter(name, "text without U+0000")),
            (Some(value), None) => Ok(Some(value.into())),
            (Some(_), Some(_)) => Err(wrong_parameter(name, "given once")),
        }
    }

    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.text(name)? {
            None => Ok(None),
            Some(text) => parse(&text).map(Some).ok_or_else(|| wrong_parameter(name, expected)),
        }
    }

    pub(crate) fn limit(&mut self) -> Result<usize, Problem> {
        let limit =
            self.parsed("limit", "a whole number from 1 to 500", |t| t.parse().ok().filter(|n| (1..=500).contains(n)))?;
        Ok(limit.unwrap_or(50))
    }

    pub(crate) fn done(self) -> Result<(), Problem> {
        match self.parameters.first() {
            None => Ok(()),
            Some((unknown, _)) => Err(wrong_parameter(unknown, "left out: it is not known here")),
        }
    }
}

fn wrong_parameter(name: &str, expected: &str) -> Problem {
    Problem::new(Kind::InvalidRequest, format!("the query parameter {name:?} must be {expected}"))
        .with("parameter", name)
}

/// `30s`, `1500ms`, `1m 30s`, or whole seconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let signed: SignedDuration = text.parse().ok()?;
    signed.try_into().ok()
}

/// The `wait` of a `Prefer` header (RFC 7240), bounded; other preferences are none of our business.
pub(crate) fn prefer_wait(headers: &HeaderMap, most: Duration) -> Result<Option<Duration>, Problem> {
    for value in headers.get_all("prefer") {
        let Ok(text) = value.to_str() else { continue };
        for preference in text.split(',') {
            let Some((name, seconds)) = preference.trim().split_once('=') else { continue };
            if name.trim().eq_ignore_ascii_case("wait") {
                return match seconds.trim().trim_matches('"').parse() {
                    Ok(seconds) => Ok(Some(Duration::from_secs(seconds).min(most))),
                    Err(_) => Err(Problem::new(
                        Kind::InvalidRequest,
                        "the header Prefer must say wait=SECONDS, such as wait=10",
                    )),
                };
            }
        }
    }
    Ok(None)
}
