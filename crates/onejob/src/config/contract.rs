//! `[tasks.*.contract]` and its file of cases: what a provider must prove before anything fails over to
//! it.

use std::collections::BTreeSet;
use std::time::Duration;

use onejob_core::Text;
use serde_json::{Value, json};

use super::section::{Item, Section};
use super::source::{self, Place};
use super::text::{OVER_INPUT, rule, string_template};
use super::{RemarkKind, defaults};
use crate::contract::Schema;
use crate::template::{Rule, Template};

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// `[tasks.<name>.contract]`.
#[derive(Debug)]
pub struct Contract {
    /// Real inputs and what is expected of their outputs. Never empty.
    pub cases: Vec<Case>,
    /// What only a provider that honours the system prompt passes; without any, there is a built-in one.
    pub canaries: Vec<Canary>,
    /// Runs of each case; every one must pass.
    pub repeat: u32,
    /// How long a certificate is valid.
    pub valid_for: Duration,
    /// How often certificates are renewed by themselves, before they end.
    pub verify_every: Option<Duration>,
    /// How far the prompt tokens that a provider reports may be from the local count, as a share of it.
    pub token_tolerance: f64,
    /// Tokens of the longest prompt that is tried.
    pub probe_tokens: u64,
    /// Output modes in which every case must pass, beside the one that production uses.
    pub modes: Vec<OutputMode>,
}

/// A real input.
#[derive(Debug)]
pub struct Case {
    /// Its name in reports; unique.
    pub name: Text,
    /// The input.
    pub input: Value,
    /// Rules over `{input, output}` for this case, with their source texts.
    pub expect: Vec<(String, Rule)>,
}

/// A chat of its own, which the provider passes only if it honours the system prompt.
#[derive(Debug)]
pub struct Canary {
    /// Its name in reports; unique.
    pub name: Text,
    /// System prompt, a template over `{input}`.
    pub system: Template,
    /// User prompt, a template over `{input}`.
    pub user: Template,
    /// What the templates and rules see as `input`.
    pub input: Value,
    /// Rules over `{input, output}`; the output is the text as the provider gave it.
    pub expect: Vec<(String, Rule)>,
    /// What its digest covers.
    source: Value,
}

/// How a chat provider is asked for the form of its output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OutputMode {
    /// Not at all: the prompt alone says it.
    Text,
    /// JSON, whatever its form.
    JsonObject,
    /// JSON of the task's schema, which is sent along.
    JsonSchema,
}

impl OutputMode {
    /// All modes.
    pub const ALL: [OutputMode; 3] = [OutputMode::Text, OutputMode::JsonObject, OutputMode::JsonSchema];

    /// The word for it, the same in the configuration, templates and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            OutputMode::Text => "text",
            OutputMode::JsonObject => "json_object",
            OutputMode::JsonSchema => "json_schema",
        }
    }

    /// The mode of that word.
    pub fn parse(word: &str) -> Option<OutputMode> {
        OutputMode::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

impl Contract {
    /// What it demands, for the digest: neither how long a proof is valid nor when it is renewed.
    pub(super) fn demands(&self) -> Value {
        let rules =
            |rules: &[(String, Rule)]| rules.iter().map(|(text, _)| Value::from(text.as_str())).collect::<Value>();
        let cases = self
            .cases
            .iter()
            .map(|case| json!({"name": &*case.name, "input": case.input, "expect": rules(&case.expect)}));
        let modes: BTreeSet<&str> = self.modes.iter().map(|mode| mode.as_str()).collect();
        json!({
            "cases": cases.collect::<Vec<Value>>(),
            "canaries": self.canaries.iter().map(|canary| canary.source.clone()).collect::<Vec<Value>>(),
            "repeat": self.repeat,
            "token_tolerance": self.token_tolerance,
            "probe_tokens": self.probe_tokens,
            "modes": modes,
        })
    }
}

/// Calls in one output mode: each is paid, and what came of all of them is held until the verdict.
const MOST_RUNS: u64 = 10_000;

/// What of its task a contract is read against.
pub(super) struct Surroundings<'a> {
    pub input_schema: Option<&'a Schema>,
    pub has_output_schema: bool,
    pub has_chat: bool,
}

/// Reads a contract.
pub(super) fn read(item: &Item<'_>, task: &Surroundings<'_>) -> Option<Contract> {
    let section = item.section("a table such as { cases = \"contracts/summarize.toml\" }")?;
    let cases = section.need("cases", "a file such as \"contracts/summarize.toml\"");
    let cases = cases.and_then(|item| file_of_cases(&item, task));
    let repeat = section.get("repeat").and_then(|item| item.whole(1..=1_000, "")).and_then(|n| u32::try_from(n).ok());
    let valid_for = section.get("valid_for").and_then(|item| item.duration(MILLISECOND..=3_650 * DAY));
    let valid_for = valid_for.unwrap_or(defaults::VALID_FOR);
    let verify_every = section.get("verify_every").and_then(|item| {
        let every = item.duration(MINUTE..=3_650 * DAY)?;
        if every >= valid_for {
            item.error("must be shorter than valid_for, or every certificate ends before it is renewed");
        }
        Some(every)
    });
    let token_tolerance = section.get("token_tolerance").and_then(|item| item.number(0.0..=1.0));
    let probe_tokens = section.get("probe_tokens").and_then(|item| item.whole(0..=10_000_000, "of tokens"));
    let modes = section.get("modes").and_then(|item| modes(&item, task)).unwrap_or_default();
    let repeat = repeat.unwrap_or(defaults::REPEAT);
    if let Some((cases, _)) = &cases
        && cases.len() as u64 * u64::from(repeat) > MOST_RUNS
    {
        let runs = cases.len() as u64 * u64::from(repeat);
        section.error(format!(
            "{} cases, {repeat} times each, are {runs} calls; at most {MOST_RUNS} are made",
            cases.len()
        ));
    }
    section.end(&[]);
    let (cases, canaries) = cases?;
    Some(Contract {
        cases,
        canaries,
        repeat,
        valid_for,
        verify_every,
        token_tolerance: token_tolerance.unwrap_or(defaults::TOKEN_TOLERANCE),
        probe_tokens: probe_tokens.unwrap_or(defaults::PROBE_TOKENS),
        modes,
    })
}

fn modes(item: &Item<'_>, task: &Surroundings<'_>) -> Option<Vec<OutputMode>> {
    let words = OutputMode::ALL.map(|mode| (mode.as_str(), mode));
    let mut modes = Vec::new();
    for item in item.array("output modes such as [\"text\", \"json_schema\"]")? {
        let Some(mode) = item.word(&words) else { continue };
        if modes.contains(&mode) {
            item.error(format!("the mode {:?} is named twice", mode.as_str()));
        }
        if mode == OutputMode::JsonSchema && !task.has_output_schema {
            item.error("needs output.schema: it is what this mode sends");
        }
        modes.push(mode);
    }
    if !task.has_chat {
        item.remark(RemarkKind::NoEffect, "output modes are for chats, and this task has none");
    }
    Some(modes)
}

/// The file of cases: read and checked, its own errors under its own name.
fn file_of_cases(item: &Item<'_>, task: &Surroundings<'_>) -> Option<(Vec<Case>, Vec<Canary>)> {
    let (path, bytes) = item.file("contracts/summarize.toml")?;
    let findings = item.findings;
    let Ok(text) = String::from_utf8(bytes) else {
        item.error(format!("{} is not UTF-8", path.display()));
        return None;
    };
    let file = findings.file(&path.display().to_string());
    let table = match source::parse(&text, file) {
        Ok(table) => table,
        Err(errors) => {
            for (line, message) in errors {
                findings.error(Place { file, line }, "", message);
            }
            return None;
        }
    };
    let section = Section::root(findings, &table, Place { file, line: 0 });
    let all = section.need("case", "one [[case]] or more").and_then(|item| {
        let all = item.array("tables: [[case]]")?;
        if all.is_empty() {
            item.error("expected one [[case]] or more, found none");
        }
        Some(all)
    });
    let mut names = BTreeSet::new();
    let cases: Vec<Option<Case>> =
        all.unwrap_or_default().iter().map(|item| case(item, task.input_schema, &mut names)).collect();
    let canaries = section.get("canary").and_then(|item| {
        if !task.has_chat {
            item.remark(RemarkKind::NoEffect, "canaries are chats, and this task has none");
        }
        item.array("tables: [[canary]]")
    });
    let canaries: Vec<Option<Canary>> =
        canaries.unwrap_or_default().iter().map(|item| canary(item, &mut names)).collect();
    section.end(&[]);
    Some((cases.into_iter().collect::<Option<_>>()?, canaries.into_iter().collect::<Option<_>>()?))
}

fn name(section: &Section<'_>, names: &mut BTreeSet<String>) -> Option<Text> {
    let item = section.need("name", "a name such as \"short note\"")?;
    let name = item.string("short note")?;
    if name.is_empty() {
        item.error("expected a name such as \"short note\", found an empty string");
        return None;
    }
    if !names.insert(name.to_owned()) {
        item.error(format!("the name {name:?} is given twice: reports could not tell which is meant"));
    }
    Some(name.into())
}

fn case(item: &Item<'_>, schema: Option<&Schema>, names: &mut BTreeSet<String>) -> Option<Case> {
    let section = item.section("a table: [[case]]")?;
    let name = name(&section, names);
    let input = section.need("input", "an input such as { text = \"…\" }").and_then(|item| {
        let input = item.json()?;
        if let Some(Err(violation)) = schema.map(|schema| schema.check(&input)) {
            let place = if violation.pointer.is_empty() { "the top" } else { &violation.pointer };
            item.error(format!("does not match the task's input_schema at {place}: {violation}"));
        }
        Some(input)
    });
    let expect = section.get("expect").and_then(|item| item.array("rules")).unwrap_or_default();
    let expect: Vec<Option<(String, Rule)>> = expect.iter().map(rule).collect();
    section.end(&[]);
    Some(Case { name: name?, input: input?, expect: expect.into_iter().collect::<Option<_>>()? })
}

fn canary(item: &Item<'_>, names: &mut BTreeSet<String>) -> Option<Canary> {
    let section = item.section("a table: [[canary]]")?;
    let name = name(&section, names);
    let text = |key, example: &str| {
        let item = section.need(key, &format!("a text such as {example:?}"))?;
        Some((item.string(example)?, string_template(&item, example, OVER_INPUT)?))
    };
    let system = text("system", "Answer every message with the one word saffron.");
    let user = text("user", "What is the capital of France?");
    let input = section.get("input").map_or(Some(Value::Null), |item| item.json());
    let expect = section.need("expect", "rules such as [\"'saffron' in output\"]").and_then(|item| {
        let all = item.array("rules")?;
        if all.is_empty() {
            item.error("expected one rule or more, found none: a canary that demands nothing proves nothing");
        }
        Some(all)
    });
    let expect: Vec<Option<(String, Rule)>> = expect.unwrap_or_default().iter().map(rule).collect();
    section.end(&[]);
    let (system, user, input) = (system?, user?, input?);
    let expect: Vec<(String, Rule)> = expect.into_iter().collect::<Option<_>>()?;
    let rules: Vec<&str> = expect.iter().map(|(text, _)| text.as_str()).collect();
    let source = json!({"system": system.0, "user": user.0, "input": input, "expect": rules});
    Some(Canary { name: name?, system: system.1, user: user.1, input, expect, source })
}
