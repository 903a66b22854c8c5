//! A whole 2xx answer: what the definition takes from it.

use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use onejob_core::{Observation, Seen, Text, Usage};
use serde_json::{Map, Value};

use super::{Lost, Whole};
use crate::config::{HttpDefinition, ResponseDefinition};
use crate::contract::Breach;
use crate::json::{self, Duplicates};
use crate::provider::Answer;
use crate::template::{Scope, Template};

/// How deep an answer may nest.
const MAX_DEPTH: usize = 4 * json::MAX_DEPTH;

/// Reads answers as a definition says.
pub(super) struct Reader {
    response: ResponseDefinition,
    /// Something is taken from the body, so it has to be JSON.
    needs_body: bool,
}

impl Reader {
    pub(super) fn open(definition: &HttpDefinition) -> Reader {
        let response = &definition.response;
        let takes_all = response.output.is_none() && response.handle.is_none();
        let needs_body = takes_all || response.templates().any(|template| template.names().contains("body"));
        Reader { response: response.clone(), needs_body }
    }

    /// What a 2xx answer means; `call` is what its request's templates saw, without secrets.
    pub(super) fn read(&self, answer: &Whole, call: &Scope) -> Result<Answer, Lost> {
        let lost = |observation, message: String| Lost::new(observation, Some(answer.status), message);
        let body = self.read_body(answer)?;
        let mut scope =
            call.clone().with("status", answer.status.into()).with("headers", headers_as_json(&answer.headers));
        if let Some(body) = &body {
            scope = scope.with("body", body.clone());
        }
        let incomplete = |key: &str, error: &dyn std::fmt::Display| {
            lost(Observation::Incomplete, format!("response.{key} cannot be taken from the answer: {error}"))
        };
        if holds(self.response.failed.as_ref(), &scope).map_err(|e| incomplete("failed", &e))? {
            let said = text_of(self.response.error.as_ref(), &scope);
            let message = said.unwrap_or_else(|| "the provider reports that the work failed".to_owned());
            return Err(lost(Observation::FailedThere, message));
        }
        let seen = self.seen(&scope);
        // Nothing at all is no answer without an output: it cannot be read, and says nothing about the work.
        let lacks = if body.is_some() { Observation::Incomplete } else { Observation::Undecodable };
        let broken = |observation, breach, message: &str| Lost {
            seen: seen.clone(),
            breach: Some(breach),
            ..lost(observation, message.to_owned())
        };
        if let Some(template) = &self.response.handle {
            match template.render(&scope).map_err(|e| incomplete("handle", &e))?.and_then(into_handle) {
                Some(handle) => return Ok(Answer::Accepted { handle, seen }),
                None if self.response.output.is_none() => {
                    return Err(lost(lacks, "the answer has no response.handle".to_owned()));
                }
                None => {}
            }
        }
        if holds(self.response.truncated.as_ref(), &scope).map_err(|e| incomplete("truncated", &e))? {
            let message = "the provider cut the output off at a limit";
            return Err(broken(Observation::BreaksContract, Breach::CutOff, message));
        }
        let output = match &self.response.output {
            Some(template) => template.render(&scope).map_err(|e| incomplete("output", &e))?,
            None => Some(body.unwrap_or(Value::Null)),
        };
        match output {
            Some(output) => Ok(Answer::Done { output, seen }),
            None => Err(broken(lacks, Breach::NoOutput, "the answer has no response.output")),
        }
    }

    /// The body as JSON. None if it is empty, or if it is none and nothing is taken from it.
    fn read_body(&self, answer: &Whole) -> Result<Option<Value>, Lost> {
        // Without either header a body ends where the connection ends, be that its end or not.
        let has_end_marker = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| answer.headers.contains_key(name))
            || answer.status == 204;
        let lost = |observation, message: String| Lost::new(observation, Some(answer.status), message);
        let cut_short =
            || lost(Observation::CutShort, "the answer has no end marker and may have been cut short".to_owned());
        if answer.body.is_empty() {
            return if has_end_marker { Ok(None) } else { Err(cut_short()) };
        }
        match json::parse(&answer.body, Duplicates::LastStands, MAX_DEPTH) {
            // All other JSON shows its own end.
            Ok(Value::Number(_)) if !has_end_marker => Err(cut_short()),
            Ok(body) => Ok(Some(body)),
            Err(_) if !self.needs_body => Ok(None),
            Err(error) => Err(lost(
                Observation::Undecodable,
                format!(
                    "the answer of {} bytes is no JSON: line {}, column {}",
                    answer.body.len(),
                    error.line,
                    error.column
                ),
            )),
        }
    }

    fn seen(&self, scope: &Scope) -> Seen {
        let usage = self.response.usage.as_ref().and_then(|template| template.render(scope).ok().flatten());
        let count = |key: &str| usage.as_ref()?.get(key)?.as_u64();
        let usage = Usage { input_tokens: count("input_tokens"), output_tokens: count("output_tokens") };
        Seen {
            model: text_of(self.response.model.as_ref(), scope).map(Text::from),
            usage: Some(usage).filter(|usage| *usage != Usage::default()),
        }
    }
}

impl ResponseDefinition {
    /// All its templates.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let ResponseDefinition { output, model, usage, handle, failed, error, truncated } = self;
        [output, model, usage, handle, failed, error, truncated].into_iter().flatten()
    }
}

/// Whether an optional template renders to something true: what is undefined is not.
fn holds(template: Option<&Template>, scope: &Scope) -> Result<bool, crate::template::TemplateError> {
    let Some(template) = template else { return Ok(false) };
    Ok(match template.render(scope)? {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(members)) => !members.is_empty(),
    })
}

fn text_of(template: Option<&Template>, scope: &Scope) -> Option<String> {
    match template?.render(scope).ok()?? {
        Value::String(text) if !text.is_empty() => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
        other @ (Value::Array(_) | Value::Object(_)) => Some(other.to_string()),
    }
}

fn into_handle(value: Value) -> Option<Text> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Header names in lower case; lines of one name joined as RFC 9110 (section 5.3) allows.
fn headers_as_json(headers: &HeaderMap) -> Value {
    let mut object = Map::new();
    for name in headers.keys() {
        let lines = headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
        object.insert(name.as_str().to_owned(), lines.collect::<Vec<_>>().join(", ").into());
    }
    object.into()
}
