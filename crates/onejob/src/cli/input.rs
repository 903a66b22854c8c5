//! Values on the command line: JSON from an argument, a file or standard input; lengths of time;
//! moments.

use std::io::Read;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;

use super::Stop;
use super::exit::Exit;

/// Reads a JSON text: `-` is standard input, `@path` a file, anything else the text itself.
///
/// The text is kept as it was written, numbers and all: the server reads it strictly, and what a
/// client rounds would change the intent.
///
/// # Errors
///
/// [`Exit::Usage`] with the place, if it cannot be read or is no JSON.
pub(crate) fn json(option: &str, value: &str) -> Result<Box<RawValue>, Stop> {
    let text = match value {
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Stop::told(Exit::Usage, format!("{option}: standard input: {error}")))?;
            text
        }
        _ => match value.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| Stop::told(Exit::Usage, format!("{option}: {path}: {error}")))?,
            None => value.to_owned(),
        },
    };
    RawValue::from_string(text).map_err(|error| Stop::Told {
        exit: Exit::Usage,
        message: format!("{option} is no JSON: {error}"),
        next: Some(
            "a text is a JSON string in quotes: '\"like this\"'; @FILE reads a file, - standard input.".to_owned(),
        ),
    })
}

/// A length of time: seconds as a bare number, or with units: `10`, `1.5`, `30s`, `2m`, `1h30m`.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected seconds (10) or a time with its unit (30s, 2m), not `{text}`");
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| expected());
    }
    let length = text.parse::<SignedDuration>().map_err(|_| expected())?;
    Duration::try_from(length).map_err(|_| expected())
}

/// A moment: RFC 3339, or a length of time from now. Gives it as RFC 3339.
pub(crate) fn moment(text: &str) -> Result<String, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.to_string());
    }
    let from_now = length(text.strip_prefix('+').unwrap_or(text)).ok().and_then(|d| SignedDuration::try_from(d).ok());
    let at = from_now.and_then(|length| Timestamp::now().checked_add(length).ok());
    match at.and_then(|at| Timestamp::from_millisecond(at.as_millisecond()).ok()) {
        Some(at) => Ok(at.to_string()),
        None => Err(format!("expected a moment (2026-01-31T09:30:00Z) or a time from now (10m), not `{text}`")),
    }
}
