//! What is compiled while loading: templates, rules, schemas; and the names that they may use.

use std::collections::BTreeSet;

use serde_json::Value;

use super::section::{Item, suggestion};
use crate::contract::Schema;
use crate::json::{Duplicates, MAX_DEPTH, parse};
use crate::template::{Rule, Template};

/// What a request's templates see.
const REQUEST: &[&str] = &["input", "chat", "job", "attempt", "secret", "provider", "callback_url"];
/// What templates over a provider's answer see: no secrets, so that none can become a result.
const ANSWER: &[&str] = &["input", "chat", "job", "attempt", "provider", "callback_url", "status", "headers", "body"];
/// What templates over a later answer see.
const LATER_ANSWER: &[&str] =
    &["input", "chat", "job", "attempt", "provider", "callback_url", "handle", "status", "headers", "body"];
/// What the request of a look-up or a cancel call sees.
const FOLLOW_UP: &[&str] = &["input", "chat", "job", "attempt", "secret", "provider", "callback_url", "handle"];
/// What a chat block and a simulated provider's behaviour see.
const INPUT: &[&str] = &["input", "job", "attempt"];
/// What rules see.
const RULE: &[&str] = &["input", "output"];

/// The names that templates in one place may use.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    roots: &'static [&'static str],
    known: Option<&'a Known>,
}

/// What a provider's templates find under `secret` and `provider`.
#[derive(Default)]
pub(super) struct Known {
    /// The names of its secrets.
    pub secrets: BTreeSet<String>,
    /// The names of its preset's settings.
    pub settings: BTreeSet<String>,
}

impl Known {
    /// In a request.
    pub(super) fn request(&self) -> Names<'_> {
        Names { roots: REQUEST, known: Some(self) }
    }

    /// Over an answer.
    pub(super) fn answer(&self) -> Names<'_> {
        Names { roots: ANSWER, known: Some(self) }
    }

    /// Over what comes later: a look-up's answer, a callback.
    pub(super) fn later_answer(&self) -> Names<'_> {
        Names { roots: LATER_ANSWER, known: Some(self) }
    }

    /// In a call that follows up on an attempt.
    pub(super) fn follow_up(&self) -> Names<'_> {
        Names { roots: FOLLOW_UP, known: Some(self) }
    }
}

/// In a chat block and in a simulated provider's behaviour.
pub(super) const OVER_INPUT: Names<'static> = Names { roots: INPUT, known: None };

/// Compiles every string in a value. All errors are found, not only the first.
pub(super) fn template(item: &Item<'_>, names: Names<'_>) -> Option<Template> {
    let value = item.json();
    let good = item.strings_inside().iter().filter(|leaf| !check(leaf, names)).count() == 0;
    // Each string compiles by itself, so all of them do.
    Template::compile(&value?).ok().filter(|_| good)
}

/// Compiles a string.
pub(super) fn string_template(item: &Item<'_>, example: &str, names: Names<'_>) -> Option<Template> {
    item.string(example)?;
    template(item, names)
}

fn check(leaf: &Item<'_>, names: Names<'_>) -> bool {
    let compiled = leaf.string("").map(|text| Template::compile(&Value::String(text.to_owned())));
    let template = match compiled {
        Some(Ok(template)) => template,
        Some(Err(error)) => {
            leaf.error(error.message);
            return false;
        }
        None => return false,
    };
    let mut good = true;
    for root in template.names() {
        if !names.roots.contains(&root.as_str()) {
            leaf.error(format!("there is no `{root}` here; {}", suggestion(&root, names.roots)));
            good = false;
        }
    }
    // A preset may read what is optional.
    if let Some(known) = names.known.filter(|_| leaf.is_own()) {
        good &= check_members(leaf, &template, "secret", &known.secrets);
        good &= check_members(leaf, &template, "provider", &known.settings);
    }
    good
}

fn check_members(leaf: &Item<'_>, template: &Template, root: &str, known: &BTreeSet<String>) -> bool {
    let mut good = true;
    for member in template.members(root) {
        if !known.contains(&member) {
            let all: Vec<&str> = known.iter().map(String::as_str).collect();
            let hint = if all.is_empty() { "the provider has none".to_owned() } else { suggestion(&member, &all) };
            leaf.error(format!("there is no `{root}.{member}`; {hint}"));
            good = false;
        }
    }
    good
}

/// Compiles one expression.
pub(super) fn rule(item: &Item<'_>) -> Option<(String, Rule)> {
    let text = item.string("output.bullets | length <= 5")?;
    let rule = match Rule::compile(text) {
        Ok(rule) => rule,
        Err(error) => {
            item.error(error.message.replacen("not a template", "not an expression", 1));
            return None;
        }
    };
    let mut good = true;
    for root in rule.names() {
        if !RULE.contains(&root.as_str()) {
            item.error(format!("there is no `{root}` here; {}", suggestion(root, RULE)));
            good = false;
        }
    }
    good.then(|| (text.to_owned(), rule))
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
