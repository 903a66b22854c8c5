//! What a certificate stands on, as SHA-256: everything of a task and of a provider that can change
//! what is asked, what is answered or what is demanded of it, and nothing else. The order of keys and
//! white space do not matter; a number is the same number however it is written.

use onejob_core::Digest;
use serde_json::{Map, Value, json};

use super::Contract;
use super::source::{Content, Node, Table};
use crate::contract::OutputContract;
use crate::intent::{canonical_text, digest};

/// What is digested, and how. Raised when the same definition would be digested otherwise: certificates
/// of before then match no more.
const VERSION: u8 = 1;

/// Keys of a provider that cannot change what it answers. What is not named here counts, so that a new
/// key counts until somebody has thought about it.
const WITHOUT_EFFECT: [&str; 10] = [
    "api_key",
    "ca_file",
    "callback",
    "cancel",
    "concurrency",
    "connect_timeout",
    "idempotency",
    "max_answer_bytes",
    "outcomes",
    "secrets",
];

/// Of a task: the prompt, what is demanded of an output, and the contract.
pub(super) fn of_task(chat: Option<&Node>, output: &OutputContract, contract: Option<&Contract>) -> Digest {
    let rules: Vec<&str> = output.rules.iter().map(|(text, _)| text.as_str()).collect();
    let document = json!({
        "chat": chat.map(value),
        "schema": output.schema.as_ref().map(|schema| schema.document().clone()),
        "strict": output.strict,
        "allow_control_tokens": output.allow_control_tokens,
        "rules": rules,
        "contract": contract.map(Contract::demands),
    });
    of(&document)
}

/// Of a provider: its merged definition, the values of its settings, and what its files say.
pub(super) fn of_provider(definition: &Node, settings: Option<&Map<String, Value>>, files: Option<&Value>) -> Digest {
    let mut definition = value(definition);
    if let Value::Object(members) = &mut definition {
        members.retain(|key, _| !WITHOUT_EFFECT.contains(&key.as_str()));
    }
    of(&json!({"definition": definition, "settings": settings, "files": files}))
}

/// Of a task at a provider.
pub(super) fn of_both(task: Digest, provider: Digest) -> Digest {
    let mut bytes = vec![VERSION];
    bytes.extend(task);
    bytes.extend(provider);
    digest(&bytes)
}

fn of(document: &Value) -> Digest {
    digest(format!("{VERSION}\n{}", canonical_text(document)).as_bytes())
}

/// TOML as JSON. What JSON cannot say is an error elsewhere.
fn value(node: &Node) -> Value {
    match &node.content {
        Content::String(text) => text.as_str().into(),
        Content::Integer(_, Some(number)) => (*number).into(),
        Content::Integer(written, None) => written.as_str().into(),
        Content::Float(_, number) => (*number).into(),
        Content::Boolean(is_true) => (*is_true).into(),
        Content::Datetime => Value::Null,
        Content::Array(elements) => elements.iter().map(value).collect(),
        Content::Table(table) => members(table).into(),
    }
}

fn members(table: &Table) -> Map<String, Value> {
    table.entries.iter().map(|(key, node)| (key.clone(), value(node))).collect()
}
