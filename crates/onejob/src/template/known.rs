//! Whether the filters and tests that a template names exist. The engine would only say so when it
//! meets them: over an answer, that is after the work was paid for.

use minijinja::{Environment, ErrorKind};

use super::TemplateError;

/// Checks one expression.
pub(super) fn check_expression(environment: &Environment<'_>, code: &str) -> Result<(), TemplateError> {
    let mut state = environment.empty_state();
    let words: Vec<&str> = words(code).collect();
    for (at, word) in words.iter().enumerate() {
        let before = |steps: usize| at.checked_sub(steps).map(|at| words[at]);
        let is_filter = before(1) == Some("|");
        let is_test = before(1) == Some("is") && *word != "not" || before(2) == Some("is") && before(1) == Some("not");
        if is_filter && is_unknown(state.apply_filter(word, &[]), ErrorKind::UnknownFilter) {
            return Err(TemplateError::new(format!("there is no filter `{word}`")));
        }
        if is_test && is_unknown(state.perform_test(word, &[]), ErrorKind::UnknownTest) {
            return Err(TemplateError::new(format!("there is no test `{word}`")));
        }
    }
    Ok(())
}

/// Checks the expressions and statements in a text.
pub(super) fn check_text(environment: &Environment<'_>, text: &str) -> Result<(), TemplateError> {
    // What stands in a raw block only looks like code.
    if text.contains("raw") && text.contains("endraw") {
        return Ok(());
    }
    let mut rest = text;
    while let Some(begin) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let inside = &rest[begin + 2..];
        let end = inside.find("}}").into_iter().chain(inside.find("%}")).min().unwrap_or(inside.len());
        check_expression(environment, &inside[..end])?;
        rest = &inside[end..];
    }
    Ok(())
}

fn is_unknown<T>(result: Result<T, minijinja::Error>, kind: ErrorKind) -> bool {
    result.is_err_and(|error| error.kind() == kind)
}

/// The words and string literals, and everything else by single characters, without white space. A
/// word after a point is an attribute: it and its point are one.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = code;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let length = match first {
            '"' | '\'' => quoted(rest, first),
            '.' => 1 + rest[1..].find(|c| !is_part(c)).unwrap_or(rest.len() - 1),
            _ if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        rest = after;
        Some(word)
    })
}

/// The length of a string literal, with its quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}
