//! What must hold of any bytes at all at the two doors where callers' bytes are read: the strict
//! JSON parser and the key header. The fuzz targets in `fuzz/` call these functions, and so do the
//! ordinary tests, with a small corpus and some thousand mutations of it.

#[cfg(test)]
mod tests;

use onejob::intent::{self, Intent, KeyError};
use onejob::json::{self, Duplicates, JsonError, MAX_DEPTH};
use serde_json::Value;

/// Reads `data` as JSON. What is accepted means the same when it is written and read again; what is
/// refused is refused by another parser too, or for a reason that is ours.
///
/// # Panics
///
/// When one of that does not hold.
pub fn strict_json(data: &[u8]) {
    let strict = json::parse(data, Duplicates::Refused, MAX_DEPTH);
    let lenient = json::parse(data, Duplicates::LastStands, MAX_DEPTH);
    for error in [&strict, &lenient].into_iter().filter_map(|read| read.as_ref().err()) {
        let lines = data.iter().filter(|byte| **byte == b'\n').count() + 1;
        assert!((1..=lines).contains(&error.line) && (1..=data.len() + 1).contains(&error.column), "{error}");
    }
    let other: Result<Value, _> = serde_json::from_slice(data);
    match strict {
        Ok(value) => {
            assert!(other.is_ok(), "accepted what serde_json refuses");
            assert!(lenient.is_ok_and(|lenient| lenient == value), "the two modes differ");
            means_the_same_again(&value);
        }
        Err(error) => assert!(other.is_err() || is_ours_alone(&error), "refused what serde_json accepts: {error}"),
    }
}

/// Refusals that other parsers do not share.
fn is_ours_alone(error: &JsonError) -> bool {
    let reasons = ["twice in one object", "U+0000", "nested deeper", "the exponent of a number"];
    reasons.iter().any(|reason| error.message.contains(reason))
}

fn means_the_same_again(value: &Value) {
    let written = value.to_string();
    let again = json::parse(written.as_bytes(), Duplicates::Refused, MAX_DEPTH).expect("what we wrote we can read");
    assert_eq!(&again, value);
    let fingerprint = |value: &Value| Intent::new("task", value, None).fingerprint;
    assert_eq!(fingerprint(&again), fingerprint(value));
    assert!(intent::differences(("task", &again, None), ("task", value, None)).is_empty());
    let canonical = intent::canonical("task", value, None);
    match json::parse(canonical.as_bytes(), Duplicates::Refused, MAX_DEPTH + 1) {
        Ok(read) => assert_eq!(intent::canonical("task", &read["input"], None), canonical, "no fixpoint"),
        // 10e999999999999999 has one digit more once it is written with one digit before the point.
        Err(error) => assert!(error.message.contains("the exponent of a number"), "{error}: {canonical}"),
    }
}

/// Reads the lines of `data`, split at newlines, as the `Idempotency-Key` headers of one request.
///
/// # Panics
///
/// When it is accepted or refused against the rule.
pub fn key_header(data: &[u8]) {
    let lines: Vec<&[u8]> = if data.is_empty() { Vec::new() } else { data.split(|byte| *byte == b'\n').collect() };
    let expected = match &lines[..] {
        [only] => key_of(only),
        _ => None,
    };
    match intent::parse_key(lines.iter().copied()) {
        Ok(key) => assert_eq!(Some(key.as_bytes()), expected),
        Err(KeyError::Missing) => assert!(lines.is_empty()),
        Err(KeyError::Invalid(_)) => assert!(expected.is_none() && !lines.is_empty()),
    }
}

/// The rule, said once more in other words.
fn key_of(line: &[u8]) -> Option<&[u8]> {
    let quotes = line.iter().filter(|byte| **byte == b'"').count();
    let key = match quotes {
        0 => line,
        2 => line.strip_prefix(b"\"")?.strip_suffix(b"\"")?,
        _ => return None,
    };
    let visible = |byte: &u8| matches!(byte, b'!' | b'#'..=b'+' | b'-'..=b'[' | b']'..=b'~');
    (!key.is_empty() && key.len() < 256 && key.iter().all(visible)).then_some(key)
}
