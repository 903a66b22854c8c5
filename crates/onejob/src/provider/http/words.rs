//! What is said about a call that failed: short, without secrets, in the provider's own words where
//! it has any.

use std::time::{Duration, SystemTime};

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;
use serde_json::Value;

use crate::config::Secret;
use crate::json::{self, Duplicates};

/// The longest message, in characters.
const LONGEST_MESSAGE: usize = 300;

/// The longest delay that a provider may ask for. One that names more means "not soon", and a day
/// is soon enough to ask again.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Takes secrets out of what people and logs get to see.
pub(super) struct Redactor {
    /// Every form in which a secret may come back, the longest first.
    hidden: Vec<String>,
}

impl Redactor {
    pub(super) fn new<'a>(secrets: impl Iterator<Item = &'a Secret>) -> Redactor {
        let mut hidden: Vec<String> = secrets.flat_map(|secret| forms(secret.reveal())).collect();
        hidden.retain(|form| !form.is_empty());
        hidden.sort_by_key(|form| std::cmp::Reverse(form.len()));
        hidden.dedup();
        Redactor { hidden }
    }

    /// `text` as one short line without secrets.
    pub(super) fn sentence(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for form in &self.hidden {
            if text.contains(form.as_str()) {
                text = text.replace(form.as_str(), "***");
            }
        }
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match line.char_indices().nth(LONGEST_MESSAGE) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// A secret as it is, as it stands in a URL, and as it stands in JSON.
fn forms(secret: &str) -> [String; 3] {
    let in_json = Value::from(secret).to_string();
    let in_url = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    [secret.to_owned(), in_url, in_json.trim_matches('"').to_owned()]
}

/// What to say about an answer outside 2xx.
pub(super) fn of_status(status: u16, body: &[u8]) -> String {
    let said = json::parse(body, Duplicates::LastStands, json::MAX_DEPTH).ok().as_ref().and_then(said);
    match (said, status) {
        (Some(said), _) => said,
        (None, 300..=399) => format!("the provider answered with a redirect ({status}), which is never followed"),
        (None, _) => format!("the provider answered with status {status}"),
    }
}

/// The sentence in an error body, at the usual places.
fn said(body: &Value) -> Option<String> {
    let error = body.get("error");
    let errors = body.get("errors").and_then(|errors| errors.get(0));
    let places = [
        error.and_then(|error| error.get("message")),
        error,
        body.get("message"),
        body.get("detail"),
        errors.and_then(|error| error.get("message")),
        errors,
        body.get("title"),
    ];
    let text = places.into_iter().flatten().filter_map(Value::as_str).find(|text| !text.trim().is_empty());
    text.map(str::to_owned)
}

/// What to say about a connection that gave no answer.
pub(super) fn of_lost_connection(error: &hyper::Error) -> String {
    if error.is_parse() {
        "what the provider sent is no HTTP answer".to_owned()
    } else if error.is_incomplete_message() {
        "the provider closed the connection before its answer was whole".to_owned()
    } else {
        "the connection broke before the answer came".to_owned()
    }
}

/// The delay that an answer asks for, in milliseconds: `retry-after-ms`, or `retry-after` as
/// seconds or as a date (RFC 9110, section 10.2.3).
pub(super) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let longest_ms = LONGEST_RETRY_AFTER.as_millis() as u64;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Some((ms.ceil() as u64).min(longest_ms));
    }
    let text = text(RETRY_AFTER.as_str())?;
    let ms = match number(text) {
        Some(seconds) => (seconds * 1000.0).ceil() as u64,
        None => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(SystemTime::now()).unwrap_or_default().as_millis() as u64
        }
    };
    Some(ms.min(longest_ms))
}
