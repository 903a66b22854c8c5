//! What a task demands of every answer before it may win: output schema, `strict`, rules. And what a
//! provider must prove before anything fails over to it: the checks of a task's contract, their report,
//! and what in production says that the proof holds no more.

mod names;
mod leaks;
mod prompt;
pub mod report;
pub mod verify;
mod renders;
mod canary;
mod cases;
mod probes;
mod certify;
mod drift;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use prompt::tests as prompt_tests;

pub use certify::detail as certificate_detail;
pub use drift::drift;
pub use prompt::{ChatTemplate, Controls, Message, Special, Tokenizer};

use std::collections::BTreeSet;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::json::{self, Duplicates};
use crate::template::{Rule, Scope};

/// The longest message of a violation, in characters: enough for a sentence.
const LONGEST_MESSAGE: usize = 300;

/// The output part of a task, compiled once.
#[derive(Debug, Default)]
pub struct OutputContract {
    /// JSON Schema of the output, and its top-level property names for `strict`.
    pub schema: Option<Schema>,
    /// No top-level key beyond the schema's.
    pub strict: bool,
    /// Rules over `{input, output}`, with their source text for messages.
    pub rules: Vec<(String, Rule)>,
    /// Control tokens of chat templates may stand in an output, as where it is about them.
    pub allow_control_tokens: bool,
}

/// The kinds of breach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Breach {
    /// Text where JSON was demanded.
    NoJson,
    /// JSON in a code fence.
    Fence,
    /// JSON of another form than the schema's.
    Shape,
    /// A top-level key of the provider's own invention.
    InventedKey,
    /// A control token of a chat template, as text.
    ControlToken,
    /// The provider cut the output off at a limit.
    CutOff,
    /// No output where the definition takes it from.
    NoOutput,
    /// A rule does not hold, or cannot be evaluated.
    Rule,
}

impl Breach {
    /// The word for it, in reports and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Breach::NoJson => "no_json",
            Breach::Fence => "fence",
            Breach::Shape => "shape",
            Breach::InventedKey => "invented_key",
            Breach::ControlToken => "control_token",
            Breach::CutOff => "cut_off",
            Breach::NoOutput => "no_output",
            Breach::Rule => "rule",
        }
    }
}

/// A compiled JSON Schema.
#[derive(Debug)]
pub struct Schema {
    document: Value,
    validator: jsonschema::Validator,
    names: names::Names,
}

/// Where a value breaks a schema or a rule; never the value itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Violation {
    /// Which kind.
    pub breach: Breach,
    /// JSON pointer into the value.
    pub pointer: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl Schema {
    /// Compiles a JSON Schema document: drafts 4, 6, 7, 2019-09 and 2020-12, as its `$schema` says,
    /// without one 2020-12. References may point inside the document only.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with it.
    pub fn compile(document: &Value) -> Result<Schema, String> {
        if let Some(remote) = names::remote_reference(document) {
            return Err(format!(
                "the schema refers to `{remote}`: only references inside the document (`#/…`) are supported"
            ));
        }
        let validator = jsonschema::options().offline().build(document).map_err(|error| match error.kind() {
            ValidationErrorKind::Referencing(what) => format!("a reference in the schema leads nowhere: {what}"),
            _ => format!("no valid JSON Schema, at `{}`: {error}", error.instance_path()),
        })?;
        let names = names::Names::of(document)?;
        Ok(Schema { document: document.clone(), validator, names })
    }

    /// The document it was compiled from.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn check(&self, value: &Value) -> Result<(), Violation> {
        self.validator.validate(value).map_err(|error| Violation {
            breach: Breach::Shape,
            pointer: error.instance_path().to_string(),
            message: cut(&error.masked().to_string()),
        })
    }

    /// The top-level properties that the schema names: its own `properties` and those of whatever
    /// it joins in by `allOf`, `anyOf`, `oneOf`, `then`, `else`, `dependentSchemas` and `$ref`.
    pub fn property_names(&self) -> &BTreeSet<String> {
        &self.names.properties
    }

    /// The first top-level key that the schema does not name.
    fn check_strictly(&self, value: &Value) -> Result<(), Violation> {
        let stranger = value.as_object().and_then(|object| object.keys().find(|key| !self.names.contains(key)));
        match stranger {
            None => Ok(()),
            Some(key) => Err(Violation {
                breach: Breach::InventedKey,
                pointer: cut(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
                message: "the schema does not name this key, and the task is strict".into(),
            }),
        }
    }
}

impl OutputContract {
    /// Whether there is an output that it refuses.
    pub fn demands_anything(&self) -> bool {
        self.schema.is_some() || !self.rules.is_empty()
    }

    /// Checks an output and gives it back as it is to be stored: with a schema, an output that is a
    /// string and does not itself match is read as JSON first.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn accept(&self, input: &Value, output: Value) -> Result<Value, Violation> {
        let output = self.accept_structure(input, output)?;
        self.accept_by_rules(input, output, &self.rules)
    }

    /// The first half: everything but the rules.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn accept_structure(&self, input: &Value, output: Value) -> Result<Value, Violation> {
        let output = match &self.schema {
            Some(schema) => self.accept_shape(schema, output)?,
            None => output,
        };
        if self.demands_anything() && !self.allow_control_tokens {
            refuse_control_tokens(input, &output)?;
        }
        Ok(output)
    }

    /// The other half: these rules.
    ///
    /// # Errors
    ///
    /// The first that does not hold.
    pub fn accept_by_rules(&self, input: &Value, output: Value, rules: &[(String, Rule)]) -> Result<Value, Violation> {
        if rules.is_empty() {
            return Ok(output);
        }
        let output = Arc::new(output);
        let mut scope = Scope::new().with_shared("output", output.clone());
        if rules.iter().any(|(_, rule)| rule.names().contains("input")) {
            scope = scope.with("input", input.clone());
        }
        for (text, rule) in rules {
            let message = match rule.holds(&scope) {
                Ok(true) => continue,
                Ok(false) => format!("the rule `{text}` does not hold"),
                Err(error) => format!("the rule `{text}` cannot be evaluated: {error}"),
            };
            return Err(Violation { breach: Breach::Rule, pointer: String::new(), message: cut(&message) });
        }
        drop(scope);
        Ok(Arc::try_unwrap(output).unwrap_or_else(|shared| (*shared).clone()))
    }

    fn accept_shape(&self, schema: &Schema, output: Value) -> Result<Value, Violation> {
        let output = match schema.check(&output) {
            Ok(()) => output,
            Err(violation) => match output.as_str() {
                None => return Err(violation),
                Some(text) => {
                    let read = read_text(text)?;
                    schema.check(&read)?;
                    read
                }
            },
        };
        if self.strict {
            schema.check_strictly(&output)?;
        }
        Ok(output)
    }
}

fn refuse_control_tokens(input: &Value, output: &Value) -> Result<(), Violation> {
    match leaks::find(output, input) {
        None => Ok(()),
        Some((pointer, token)) => Err(Violation {
            breach: Breach::ControlToken,
            pointer: cut(&pointer),
            message: format!("the output holds the control token `{token}` as text"),
        }),
    }
}

/// The JSON in a text, which is nothing but JSON: what is wrapped in prose or fences is not what
/// the task asked for.
fn read_text(text: &str) -> Result<Value, Violation> {
    json::parse(text.as_bytes(), Duplicates::LastStands, json::MAX_DEPTH).map_err(|error| {
        let (breach, message) = match (leaks::in_text(text), text.trim_start().starts_with("```")) {
            (_, true) => {
                (Breach::Fence, "the output is JSON in a code fence, and the schema demands JSON alone".to_owned())
            }
            (Some(token), false) => (
                Breach::ControlToken,
                format!("the output is text and no JSON as the schema demands; it holds the control token `{token}`"),
            ),
            (None, false) => (Breach::NoJson, format!("the output is text and no JSON as the schema demands: {error}")),
        };
        Violation { breach, pointer: String::new(), message: cut(&message) }
    })
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
