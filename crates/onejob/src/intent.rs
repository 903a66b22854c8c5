//! The intent: what was asked. Its fingerprint decides "same" or "other".
//!
//! Also the syntax of the `Idempotency-Key` header.

use onejob_core::{Digest, Text};
use serde_json::Value;

/// The version of the canonical form that this build writes.
pub const CANONICAL_VERSION: u16 = 1;

/// SHA-256 over the canonical form, with the version of the form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint {
    /// The version of the canonical form.
    pub version: u16,
    /// SHA-256 of the canonical text.
    pub digest: Digest,
}

/// Task, input and pinned provider: what a job is for. It never changes (R3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Intent {
    /// The task's name.
    pub task: Text,
    /// The input, as JSON text; numbers as the caller wrote them.
    pub input: Text,
    /// The provider that the caller pinned, if any.
    pub provider: Option<Text>,
    /// Of the three above.
    pub fingerprint: Fingerprint,
}

impl Intent {
    /// Makes the intent of a task, an input and a pinned provider.
    pub fn new(task: &str, input: &Value, provider: Option<&str>) -> Intent {
        let _ = (task, input, provider);
        todo!()
    }
}

/// The canonical text of `{task, input, provider}`: members sorted, no white space, numbers in one
/// exact form.
pub fn canonical(task: &str, input: &Value, provider: Option<&str>) -> String {
    let _ = (task, input, provider);
    todo!()
}

/// JSON pointers (RFC 6901) into the intent, such as `/input/text`, where two intents differ; no
/// values. At most 20, in document order.
pub fn differences(a: (&str, &Value, Option<&str>), b: (&str, &Value, Option<&str>)) -> Vec<String> {
    let _ = (a, b);
    todo!()
}

/// SHA-256.
pub fn digest(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

/// Why an `Idempotency-Key` header is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// No header, or an empty one line.
    #[error("the header Idempotency-Key is missing")]
    Missing,
    /// Not a key; the text says why and what is expected.
    #[error("{0}")]
    Invalid(String),
}

/// Reads the values of all `Idempotency-Key` header lines of a request: exactly one line, bare or
/// as a quoted structured-field string, 1–255 visible ASCII bytes without `"`, `\` and `,`.
///
/// # Errors
///
/// [`KeyError`].
pub fn parse_key<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Text, KeyError> {
    let _ = lines.into_iter();
    todo!()
}
