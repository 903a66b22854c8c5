//! JSON as it comes from outside: parsed once, strictly, with numbers kept exactly as written.
//!
//! Every JSON text of the product goes through [`parse`], never through `serde_json::from_str` into
//! a `Value`: that one accepts duplicate members and takes a user's object with serde_json's private
//! number key for a number.

use serde_json::Value;

/// How deep arrays and objects may nest in what callers send.
pub const MAX_DEPTH: usize = 64;

/// What to do with an object that has one member twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplicates {
    /// An error: two readers would see two different intents.
    Refused,
    /// The last one stands, as in most JSON readers: for what providers send.
    LastStands,
}

/// Why a text is not acceptable JSON.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} at line {line}, column {column}")]
pub struct JsonError {
    /// What is wrong, without any of the caller's data but the member's name.
    pub message: String,
    /// 1-based.
    pub line: usize,
    /// 1-based, in bytes.
    pub column: usize,
}

/// Parses one JSON text (RFC 8259).
///
/// Numbers keep their text (serde_json's `arbitrary_precision`). Refused: a lone surrogate, nesting
/// deeper than `max_depth`, invalid UTF-8, anything after the value, and with
/// [`Duplicates::Refused`] an object that has one member twice.
///
/// # Errors
///
/// [`JsonError`] with the place.
pub fn parse(text: &[u8], duplicates: Duplicates, max_depth: usize) -> Result<Value, JsonError> {
    let _ = (text, duplicates, max_depth);
    todo!()
}

/// Parses JSON that we wrote ourselves and stored.
///
/// # Errors
///
/// [`JsonError`] if it was damaged.
pub fn parse_stored(text: &str) -> Result<Value, JsonError> {
    parse(text.as_bytes(), Duplicates::LastStands, 4 * MAX_DEPTH)
}
