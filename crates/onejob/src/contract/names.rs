//! Which top-level keys a schema names, for `strict`; and which of its references leave it.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value, json};

/// The top-level keys that a schema names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By name.
    pub(super) properties: BTreeSet<String>,
    /// By `patternProperties`: each checks a string.
    patterns: Vec<jsonschema::Validator>,
}

impl Names {
    /// Collects them.
    pub(super) fn of(document: &Value) -> Result<Names, String> {
        let mut names = Names::default();
        names.collect(document, document, &mut HashSet::new())?;
        Ok(names)
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.properties.contains(key)
            || self.patterns.iter().any(|pattern| pattern.is_valid(&Value::String(key.to_owned())))
    }

    /// Adds what `schema`, a part of `document`, names at its top level.
    fn collect<'a>(
        &mut self,
        document: &'a Value,
        schema: &'a Value,
        seen: &mut HashSet<&'a str>,
    ) -> Result<(), String> {
        let Some(object) = schema.as_object() else { return Ok(()) };
        if let Some(properties) = member(object, "properties") {
            self.properties.extend(properties.keys().cloned());
        }
        for pattern in member(object, "patternProperties").into_iter().flat_map(Map::keys) {
            let validator = jsonschema::options().offline().build(&json!({ "pattern": pattern }));
            self.patterns.push(validator.map_err(|error| format!("no valid pattern: {error}"))?);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for part in object.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                self.collect(document, part, seen)?;
            }
        }
        for keyword in ["if", "then", "else"] {
            if let Some(part) = object.get(keyword) {
                self.collect(document, part, seen)?;
            }
        }
        for part in member(object, "dependentSchemas").into_iter().flat_map(Map::values) {
            self.collect(document, part, seen)?;
        }
        // References by anchor or by `$id` are followed by the validator and not here.
        if let Some(pointer) = object.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'))
            && seen.insert(pointer)
            && let Some(part) = document.pointer(pointer)
        {
            self.collect(document, part, seen)?;
        }
        Ok(())
    }
}

/// The first reference that leads out of the document.
pub(super) fn remote_reference(document: &Value) -> Option<String> {
    let mut ids = HashSet::new();
    collect_ids(document, &mut ids);
    find_remote(document, &ids)
}

fn collect_ids<'a>(value: &'a Value, ids: &mut HashSet<&'a str>) {
    match value {
        Value::Object(members) => {
            ids.extend(members.get("$id").and_then(Value::as_str));
            members.values().for_each(|member| collect_ids(member, ids));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_ids(item, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn find_remote(value: &Value, ids: &HashSet<&str>) -> Option<String> {
    match value {
        Value::Object(members) => members.iter().find_map(|(key, member)| match (key.as_str(), member) {
            // What stands there is data, not schema.
            ("const" | "enum" | "default" | "examples", _) => None,
            ("$ref" | "$dynamicRef", Value::String(to)) => {
                let file = to.split('#').next().unwrap_or_default();
                let inside = file.is_empty() || ids.contains(file) || ids.iter().any(|id| id.ends_with(file));
                (!inside
                    && !file.starts_with("http://json-schema.org/")
                    && !file.starts_with("https://json-schema.org/"))
                .then(|| to.clone())
            }
            _ => find_remote(member, ids),
        }),
        Value::Array(items) => items.iter().find_map(|item| find_remote(item, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn member<'a>(object: &'a Map<String, Value>, keyword: &str) -> Option<&'a Map<String, Value>> {
    object.get(keyword)?.as_object()
}
