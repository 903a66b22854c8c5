//! JSON as it comes from outside: parsed once, strictly, with numbers that lose no digit.
//!
//! Every JSON text of the product goes through [`parse`], never through `serde_json::from_str` into
//! a `Value`: that one accepts duplicate members and takes a user's object with serde_json's private
//! number key for a number.

#[cfg(test)]
mod tests;

use json_event_parser::{JsonEvent, LowLevelJsonParser};
use serde_json::{Map, Number, Value};

/// How deep arrays and objects may nest in what callers send.
pub const MAX_DEPTH: usize = 64;

/// How many digits the exponent of a number may have. RFC 8259 leaves the range of numbers to us;
/// this one is far beyond every use and lets exponents be computed in 64 bits.
pub const MAX_EXPONENT_DIGITS: usize = 15;

/// Whose text it is, told by what happens to an object that has one member twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplicates {
    /// What callers send. A member twice is an error: two readers would see two different intents.
    /// So is the character U+0000, which not every store can hold, and a byte order mark.
    Refused,
    /// What providers send and what we stored. The last one stands, as in most JSON readers.
    LastStands,
}

/// Why a text is not acceptable JSON.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} at line {line}, column {column}")]
pub struct JsonError {
    /// What is wrong, with none of the caller's data but a member's name or one character.
    pub message: String,
    /// 1-based.
    pub line: usize,
    /// 1-based, in bytes.
    pub column: usize,
}

/// Parses one JSON text (RFC 8259).
///
/// Numbers keep every digit (serde_json's `arbitrary_precision`; only `1E5` and `1e5` become
/// `1e+5`). Refused: a lone surrogate, nesting deeper than `max_depth`, invalid UTF-8, anything
/// after the value, an exponent of more than [`MAX_EXPONENT_DIGITS`], and with
/// [`Duplicates::Refused`] what is said there.
///
/// # Errors
///
/// [`JsonError`] with the place.
pub fn parse(text: &[u8], duplicates: Duplicates, max_depth: usize) -> Result<Value, JsonError> {
    if duplicates == Duplicates::Refused && text.starts_with(b"\xEF\xBB\xBF") {
        return Err(error_at(text, 0, "a byte order mark before the JSON text"));
    }
    let mut parser = LowLevelJsonParser::new();
    let mut builder = Builder { duplicates, max_depth, open: Vec::new(), root: None };
    let mut at = 0;
    loop {
        let step = parser.parse_next(&text[at..], true);
        let start = at;
        at += step.consumed_bytes;
        match step.event {
            None => {}
            Some(Ok(JsonEvent::Eof)) => break,
            Some(Ok(event)) => {
                builder.take(event).map_err(|message| error_at(text, token_start(text, start), &message))?
            }
            Some(Err(error)) => {
                let offset = usize::try_from(error.location().start.offset).unwrap_or(text.len());
                return Err(error_at(text, offset, &plain(text, error.message())));
            }
        }
    }
    builder.root.ok_or_else(|| error_at(text, text.len(), "a value is missing"))
}

/// Parses JSON that we wrote ourselves and stored.
///
/// # Errors
///
/// [`JsonError`] if it was damaged.
pub fn parse_stored(text: &str) -> Result<Value, JsonError> {
    parse(text.as_bytes(), Duplicates::LastStands, 4 * MAX_DEPTH)
}

/// Puts the events of the parser together to one value.
struct Builder {
    duplicates: Duplicates,
    max_depth: usize,
    /// The arrays and objects that are open, outermost first. No recursion: the depth of what
    /// callers send is theirs to choose until we refuse it.
    open: Vec<Open>,
    root: Option<Value>,
}

enum Open {
    Array(Vec<Value>),
    /// With the member's name whose value comes next.
    Object(Map<String, Value>, String),
}

impl Builder {
    fn take(&mut self, event: JsonEvent<'_>) -> Result<(), String> {
        match event {
            JsonEvent::Null => self.put(Value::Null),
            JsonEvent::Boolean(it) => self.put(Value::Bool(it)),
            JsonEvent::Number(text) => self.put(Value::Number(exact(&text)?)),
            JsonEvent::String(text) => {
                self.check_text(&text)?;
                self.put(Value::String(text.into_owned()))
            }
            JsonEvent::StartArray => self.enter(Open::Array(Vec::new())),
            JsonEvent::StartObject => self.enter(Open::Object(Map::new(), String::new())),
            JsonEvent::ObjectKey(name) => self.name(name.into_owned()),
            JsonEvent::EndArray | JsonEvent::EndObject => match self.open.pop() {
                Some(Open::Array(elements)) => self.put(Value::Array(elements)),
                Some(Open::Object(members, _)) => self.put(Value::Object(members)),
                None => Err("a bracket closes nothing".into()),
            },
            JsonEvent::Eof => Ok(()),
        }
    }

    fn enter(&mut self, open: Open) -> Result<(), String> {
        if self.open.len() >= self.max_depth {
            return Err(format!("nested deeper than {} levels", self.max_depth));
        }
        self.open.push(open);
        Ok(())
    }

    fn name(&mut self, name: String) -> Result<(), String> {
        self.check_text(&name)?;
        let Some(Open::Object(members, next)) = self.open.last_mut() else {
            return Err("a member outside of an object".into());
        };
        if self.duplicates == Duplicates::Refused && members.contains_key(&name) {
            return Err(format!("the member {} stands twice in one object", excerpt(&name)));
        }
        *next = name;
        Ok(())
    }

    fn put(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut() {
            Some(Open::Array(elements)) => elements.push(value),
            Some(Open::Object(members, next)) => {
                members.insert(std::mem::take(next), value);
            }
            None => self.root = Some(value),
        }
        Ok(())
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        match self.duplicates {
            Duplicates::Refused if text.contains('\0') => Err("a string holds the character U+0000".into()),
            Duplicates::Refused | Duplicates::LastStands => Ok(()),
        }
    }
}

/// The number of that text, which the parser has found to be one.
fn exact(text: &str) -> Result<Number, String> {
    if let Some((_, exponent)) = text.split_once(['e', 'E']) {
        let digits = exponent.trim_start_matches(['+', '-']).trim_start_matches('0');
        if digits.len() > MAX_EXPONENT_DIGITS {
            return Err(format!("the exponent of a number has more than {MAX_EXPONENT_DIGITS} digits"));
        }
    }
    text.parse().map_err(|_| "not a number".into())
}

/// A member's name as it may stand in a message.
fn excerpt(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    if short.len() < name.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

/// The parser's own message, where it would mislead or hold a control character replaced.
fn plain(text: &[u8], message: &str) -> String {
    if message == "Unexpected end of file" && ends_in_a_surrogate(text) {
        return "a surrogate in a string without its other half".into();
    }
    message.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The parser looks for the second half of a surrogate pair before it looks for the end of the
/// string, and so takes a lone one near the end of the text for a text that ends too early.
fn ends_in_a_surrogate(text: &[u8]) -> bool {
    let tail = &text[text.len().saturating_sub(12)..];
    tail.windows(4).any(|w| matches!(w, [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F']))
}

/// Where the token begins that was read from `from` on.
fn token_start(text: &[u8], from: usize) -> usize {
    let skipped = text[from..].iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':')).count();
    from + skipped
}

fn error_at(text: &[u8], offset: usize, message: &str) -> JsonError {
    let before = &text[..offset.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    JsonError { message: message.to_owned(), line, column: before.len() - line_start + 1 }
}
