//! Control tokens that leak into an output as text: the mark of a foreign chat template, or of a server
//! that does not stop where its model does.

use serde_json::Value;

/// Texts of control tokens that mean nothing else. A provider's own come from its tokenizer.
pub(super) const MARKERS: [&str; 24] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|im_sep|>",
    "<|endoftext|>",
    "<|endofprompt|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|return|>",
    "<|assistant|>",
    "<|user|>",
    "<|system|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<<SYS>>",
    "[/INST]",
    "<｜end▁of▁sentence｜>",
];

/// Tokens that are markup elsewhere: a leak only where they end a text that never opened them.
const ENDINGS: [(&str, &str); 2] = [("</s>", "<s>"), ("<eos>", "<bos>")];

/// The first control token in a value's strings that is not in the input too: whoever asks about
/// control tokens may get them back. Returns its place as a JSON pointer, and its text.
pub(super) fn find(output: &Value, input: &Value) -> Option<(String, &'static str)> {
    let mut path = String::new();
    let found = inside(output, &mut path)?;
    (!mentions(input, found)).then_some((path, found))
}

/// The first control token in one text.
pub(super) fn in_text(text: &str) -> Option<&'static str> {
    for (at, _) in text.match_indices(['<', '[']) {
        let rest = &text[at..];
        // Most of what begins like this is neither.
        if let Some(found) = MARKERS.iter().find(|marker| rest.starts_with(**marker)) {
            return Some(found);
        }
    }
    let text = text.trim_end();
    ENDINGS.iter().find(|(end, begin)| text.ends_with(end) && !text.contains(begin)).map(|(end, _)| *end)
}

fn inside(value: &Value, path: &mut String) -> Option<&'static str> {
    let length = path.len();
    let mut step = |name: &str, value: &Value| {
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        let found = in_text(name).or_else(|| inside(value, path));
        if found.is_none() {
            path.truncate(length);
        }
        found
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
        Value::String(text) => in_text(text),
        Value::Array(elements) => elements.iter().enumerate().find_map(|(at, value)| step(&at.to_string(), value)),
        Value::Object(members) => members.iter().find_map(|(name, value)| step(name, value)),
    }
}

/// Whether any string of a value holds a text.
fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(own) => own.contains(text),
        Value::Array(elements) => elements.iter().any(|value| mentions(value, text)),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains(text) || mentions(value, text)),
    }
}
