//! What is compiled while loading: templates, rules, schemas; and the names that templates may use.

use crate::contract::Schema;
use crate::json::{Duplicates, MAX_DEPTH, parse};
use crate::template::{Rule, Template};

use super::section::Item;

/// What a request's templates see.
pub(super) const REQUEST: &[&str] = &["input", "chat", "job", "attempt", "secret", "provider", "callback_url"];
/// What templates over a provider's answer see.
pub(super) const ANSWER: &[&str] =
    &["input", "chat", "job", "attempt", "secret", "provider", "callback_url", "handle", "status", "headers", "body"];
/// What the request of a look-up or a cancel call sees.
pub(super) const FOLLOW_UP: &[&str] =
    &["input", "chat", "job", "attempt", "secret", "provider", "callback_url", "handle"];
/// What a chat block and a simulated provider's behaviour see.
pub(super) const INPUT: &[&str] = &["input", "job", "attempt"];
/// What rules see.
pub(super) const RULE: &[&str] = &["input", "output"];

/// Compiles every string in a value.
pub(super) fn template(item: &Item<'_>, scope: &[&str]) -> Option<Template> {
    let value = item.json()?;
    match Template::compile(&value) {
        Ok(template) => Some(template),
        Err(error) => {
            item.at(&error.path).error(error.message);
            None
        }
    }
    .filter(|_| !scope.is_empty())
}

/// Compiles a string.
pub(super) fn string_template(item: &Item<'_>, example: &str, scope: &[&str]) -> Option<Template> {
    item.string(example)?;
    template(item, scope)
}

/// Compiles one expression.
pub(super) fn rule(item: &Item<'_>) -> Option<(String, Rule)> {
    let text = item.string("output.bullets | length <= 5")?;
    match Rule::compile(text) {
        Ok(rule) => Some((text.to_owned(), rule)),
        Err(error) => {
            item.error(error.message);
            None
        }
    }
}

/// Reads and compiles the JSON Schema in the file that is named.
pub(super) fn schema(item: &Item<'_>) -> Option<Schema> {
    let (path, bytes) = item.file("schemas/summary.json")?;
    let compiled = parse(&bytes, Duplicates::Refused, 4 * MAX_DEPTH)
        .map_err(|error| format!("is not JSON: {error}"))
        .and_then(|document| Schema::compile(&document).map_err(|message| format!("is no JSON Schema: {message}")));
    match compiled {
        Ok(schema) => Some(schema),
        Err(message) => {
            item.error(format!("{} {message}", path.display()));
            None
        }
    }
}
