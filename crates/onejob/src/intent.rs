//! The intent: what was asked. Its fingerprint decides "same" or "other".
//!
//! Also the syntax of the `Idempotency-Key` header. Numbers are brought to one form in `number`.

mod number;
#[cfg(test)]
mod tests;

use onejob_core::{Digest, Text};
use serde_json::{Map, Value};

/// The version of the canonical form that this build writes.
///
/// Version 1: the JSON object `{"input": …, "provider": … or null, "task": …}` in UTF-8 without
/// white space; the members of every object sorted by the bytes of their names; in strings only
/// `"`, `\` and the characters below U+0020 escaped, as `\b \t \n \f \r` or else `\u00xx` in lower
/// case; every number in the one form of RFC 8785 (JCS), but with all its digits: JCS rounds to a
/// double, this never rounds. No Unicode normalization.
///
/// It is what JCS gives as long as all numbers are written with the digits that a double needs and
/// no member name holds a character above U+FFFF.
pub const CANONICAL_VERSION: u16 = 1;

/// How many places [`differences`] names.
const MOST_DIFFERENCES: usize = 20;

/// The longest `Idempotency-Key`, in bytes.
const LONGEST_KEY: usize = 255;

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
    /// The input, as JSON text; members in the caller's order, numbers with the caller's digits.
    pub input: Text,
    /// The provider that the caller pinned, if any.
    pub provider: Option<Text>,
    /// Of the three above.
    pub fingerprint: Fingerprint,
}

impl Intent {
    /// Makes the intent of a task, an input and a pinned provider.
    pub fn new(task: &str, input: &Value, provider: Option<&str>) -> Intent {
        let digest = digest(canonical(task, input, provider).as_bytes());
        Intent {
            task: task.into(),
            input: input.to_string().into(),
            provider: provider.map(Text::from),
            fingerprint: Fingerprint { version: CANONICAL_VERSION, digest },
        }
    }
}

/// The canonical text of `{task, input, provider}`, as [`CANONICAL_VERSION`] describes it.
pub fn canonical(task: &str, input: &Value, provider: Option<&str>) -> String {
    let mut out = String::with_capacity(256);
    out.push_str("{\"input\":");
    write_value(&mut out, input);
    out.push_str(",\"provider\":");
    match provider {
        Some(provider) => write_string(&mut out, provider),
        None => out.push_str("null"),
    }
    out.push_str(",\"task\":");
    write_string(&mut out, task);
    out.push('}');
    out
}

/// The canonical text of any value.
pub(crate) fn canonical_text(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    write_value(&mut out, value);
    out
}

/// JSON pointers (RFC 6901) into the intent, such as `/input/text`, where two intents differ; no
/// values. At most 20, in document order: the members of `a` as they stand, then those that only
/// `b` has.
pub fn differences(a: (&str, &Value, Option<&str>), b: (&str, &Value, Option<&str>)) -> Vec<String> {
    let mut found = Differences { path: String::new(), pointers: Vec::new() };
    if a.0 != b.0 {
        found.note("/task");
    }
    found.path.push_str("/input");
    found.compare(a.1, b.1);
    found.path.clear();
    if a.2 != b.2 {
        found.note("/provider");
    }
    found.pointers
}

/// SHA-256.
pub fn digest(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

/// Why an `Idempotency-Key` header is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// No header line.
    #[error("the header Idempotency-Key is missing")]
    Missing,
    /// Not a key; the text says why and what is expected.
    #[error("{0}")]
    Invalid(String),
}

/// Reads the values of all `Idempotency-Key` header lines of a request: exactly one line, bare or
/// as a quoted structured-field string (RFC 8941), 1–255 visible ASCII bytes without `"`, `\` and
/// `,`. The bytes between are the key as they stand: nothing is trimmed, cut or folded.
///
/// # Errors
///
/// [`KeyError`].
pub fn parse_key<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Text, KeyError> {
    let invalid = |why: &str| {
        Err(KeyError::Invalid(format!(
            "{why}; expected 1 to 255 visible ASCII characters without \", \\ and the comma, bare or in double quotes"
        )))
    };
    let mut lines = lines.into_iter();
    let Some(line) = lines.next() else {
        return Err(KeyError::Missing);
    };
    if lines.next().is_some() {
        return invalid("the header Idempotency-Key stands more than once");
    }
    let key = match line {
        [b'"', key @ .., b'"'] => key,
        [b'"', ..] => return invalid("the quoted Idempotency-Key has no closing quote, or something after it"),
        bare => bare,
    };
    if key.is_empty() {
        return invalid("the Idempotency-Key is empty");
    }
    if key.len() > LONGEST_KEY {
        return invalid("the Idempotency-Key is too long");
    }
    match std::str::from_utf8(key) {
        Ok(text) if key.iter().all(|byte| is_key_byte(*byte)) => Ok(text.into()),
        Ok(_) | Err(_) => invalid("the Idempotency-Key has a character that is not allowed"),
    }
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',')
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => number::write(out, number.as_str()),
        Value::String(text) => write_string(out, text),
        Value::Array(elements) => {
            out.push('[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(out, element);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (name, value)) in sorted(members).into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(out, name);
                out.push(':');
                write_value(out, value);
            }
            out.push('}');
        }
    }
}

/// `str` compares by the bytes of UTF-8, which is also the order of the code points.
fn sorted(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut copied = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[copied..i]);
        copied = i + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            control => {
                out.push_str("\\u00");
                out.push(if control < 0x10 { '0' } else { '1' });
                out.push(char::from(b"0123456789abcdef"[usize::from(control & 0x0f)]));
            }
        }
    }
    out.push_str(&text[copied..]);
    out.push('"');
}

struct Differences {
    /// The pointer to what is being compared.
    path: String,
    pointers: Vec<String>,
}

impl Differences {
    fn note(&mut self, pointer: &str) {
        if self.pointers.len() < MOST_DIFFERENCES {
            self.pointers.push(pointer.to_owned());
        }
    }

    fn note_here(&mut self) {
        let here = self.path.clone();
        self.note(&here);
    }

    fn compare(&mut self, a: &Value, b: &Value) {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                for (name, value) in a {
                    self.inside(name, |found| match b.get(name) {
                        Some(other) => found.compare(value, other),
                        None => found.note_here(),
                    });
                }
                for name in b.keys().filter(|name| !a.contains_key(*name)) {
                    self.inside(name, Differences::note_here);
                }
            }
            (Value::Array(a), Value::Array(b)) => {
                for i in 0..a.len().max(b.len()) {
                    self.inside(&i.to_string(), |found| match (a.get(i), b.get(i)) {
                        (Some(a), Some(b)) => found.compare(a, b),
                        (Some(_), None) | (None, _) => found.note_here(),
                    });
                }
            }
            (Value::Number(a), Value::Number(b)) if number::same(a.as_str(), b.as_str()) => {}
            (a, b) if a == b => {}
            (_, _) => self.note_here(),
        }
    }

    /// Does `what` one step deeper, unless enough is found already.
    fn inside(&mut self, step: &str, what: impl FnOnce(&mut Differences)) {
        if self.pointers.len() >= MOST_DIFFERENCES {
            return;
        }
        let end = self.path.len();
        self.path.push('/');
        self.path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        what(self);
        self.path.truncate(end);
    }
}
