//! What a verification found: one row for each thing that was checked. Names here are part of the API.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onejob_core::Text;
use serde_json::{Map, Value, json};

use crate::config::OutputMode;
use crate::provider::Trouble;

/// The longest part of an output that a report quotes, in characters.
const LONGEST_QUOTE: usize = 300;

/// The five checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Check {
    /// The prompt arrives at the model as it was meant: template, tokens, window.
    Renders,
    /// The system prompt is honoured.
    SystemPrompt,
    /// Outputs have the form that the task demands.
    Structure,
    /// Rules hold.
    Rules,
    /// Real inputs come back answered inside the task's time.
    RoundTrip,
}

impl Check {
    /// All, in the order in which they are shown.
    pub const ALL: [Check; 5] = [Check::Renders, Check::SystemPrompt, Check::Structure, Check::Rules, Check::RoundTrip];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Check::Renders => "renders",
            Check::SystemPrompt => "system prompt",
            Check::Structure => "structure",
            Check::Rules => "rules",
            Check::RoundTrip => "round trip",
        }
    }
}

/// What came of one thing that was checked, over all its runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Which check it belongs to.
    pub check: Check,
    /// Which part of the check, such as `injection`; absent where a check has one part.
    pub part: Option<&'static str>,
    /// The output mode that it was tried in, where the provider is told one.
    pub mode: Option<OutputMode>,
    /// The case or canary.
    pub case: Option<Text>,
    /// Runs that passed.
    pub passed: u32,
    /// Runs that failed.
    pub failed: u32,
    /// Runs that came to nothing for reasons that say nothing about the contract, such as a full queue.
    pub undecided: u32,
    /// Why it was not tried.
    pub skipped: Option<String>,
    /// What is wrong, or what was measured.
    pub detail: Option<String>,
    /// The first output that failed, shortened.
    pub output: Option<String>,
}

/// What a whole verification came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The provider honours the contract.
    Passed,
    /// It does not.
    Failed,
    /// It could not be told: nothing failed, and not everything could be tried.
    Undecided,
}

/// A verification.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Of this task's contract.
    pub task: Text,
    /// At this provider.
    pub provider: Text,
    /// What was checked.
    pub rows: Vec<Row>,
    /// What is no failure and should be known: what the provider does not report, for instance.
    pub notes: Vec<String>,
    /// The model that answered, if the provider reports one and only one.
    pub model: Option<Text>,
    /// Figures.
    pub figures: Figures,
}

/// What the calls of a verification took.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Figures {
    /// Calls made, tries again among them.
    pub calls: u32,
    /// How long answers took, the quickest first.
    pub took: Vec<Duration>,
    /// Tokens in and out, as far as the provider reports them.
    pub tokens: (u64, u64),
    /// Least and most of reported prompt tokens per measured unit of prompt.
    pub prompt: Option<PromptFigures>,
}

/// How the prompt tokens that a provider reports relate to what can be measured here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PromptFigures {
    /// Measured in tokens of a tokenizer that is here; else in bytes.
    pub in_tokens: bool,
    /// The smallest ratio.
    pub least: f64,
    /// The largest ratio.
    pub most: f64,
}

/// How far a verification is, for those who watch.
#[derive(Debug, Default)]
pub struct Tally {
    done: AtomicU32,
    total: AtomicU32,
}

impl Tally {
    /// So many more calls are to be made.
    pub fn expect(&self, calls: usize) {
        self.total.fetch_add(u32::try_from(calls).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// One has ended.
    pub fn one_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls ended, and calls known to be needed.
    pub fn counts(&self) -> (u32, u32) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

impl Row {
    /// An empty row.
    pub fn of(check: Check) -> Row {
        Row {
            check,
            part: None,
            mode: None,
            case: None,
            passed: 0,
            failed: 0,
            undecided: 0,
            skipped: None,
            detail: None,
            output: None,
        }
    }

    /// A part of a check that was not tried.
    pub fn skipped(check: Check, part: Option<&'static str>, why: impl Into<String>) -> Row {
        Row { part, skipped: Some(why.into()), ..Row::of(check) }
    }

    /// A part of a check that was tried once.
    pub fn once(check: Check, part: &'static str, result: Result<Option<String>, String>) -> Row {
        let mut row = Row { part: Some(part), ..Row::of(check) };
        match result {
            Ok(detail) => (row.passed, row.detail) = (1, detail),
            Err(detail) => (row.failed, row.detail) = (1, Some(detail)),
        }
        row
    }

    /// A part of a check that could not be brought to its end: against the provider only where that is its doing.
    pub fn troubled(check: Check, part: &'static str, trouble: Trouble) -> Row {
        let mut row = Row { part: Some(part), ..Row::of(check) };
        match trouble {
            Trouble::Away(why) => row.leave_open(why),
            Trouble::Wrong(why) => row.fail(why, None),
        }
        row
    }

    /// Counts a run that failed; the first one's words are kept.
    pub fn fail(&mut self, detail: String, output: Option<String>) {
        if self.failed == 0 {
            (self.detail, self.output) = (Some(detail), output);
        }
        self.failed += 1;
    }

    /// Counts a run that came to nothing.
    pub fn leave_open(&mut self, detail: String) {
        self.undecided += 1;
        if self.failed == 0 && self.detail.is_none() {
            self.detail = Some(detail);
        }
    }

    fn to_json(&self) -> Value {
        let mut row = Map::new();
        row.insert("check".into(), self.check.as_str().into());
        row.insert("part".into(), self.part.into());
        row.insert("mode".into(), self.mode.map(OutputMode::as_str).into());
        row.insert("case".into(), self.case.as_deref().into());
        row.insert("passed".into(), self.passed.into());
        row.insert("failed".into(), self.failed.into());
        row.insert("undecided".into(), self.undecided.into());
        row.insert("skipped".into(), self.skipped.as_deref().into());
        row.insert("detail".into(), self.detail.as_deref().into());
        row.insert("output".into(), self.output.as_deref().into());
        row.into()
    }
}

impl Report {
    /// What it came to. Something must have passed: where nothing could be tried, nothing is proved.
    pub fn verdict(&self) -> Verdict {
        let any = |count: fn(&Row) -> u32| self.rows.iter().any(|row| count(row) > 0);
        if any(|row| row.failed) {
            Verdict::Failed
        } else if any(|row| row.undecided)
            || !self.rows.iter().any(|row| row.check == Check::RoundTrip && row.passed > 0)
        {
            Verdict::Undecided
        } else {
            Verdict::Passed
        }
    }

    /// As the API and the store have it, without the certificate.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut report = Map::new();
        report.insert("task".into(), (&*self.task).into());
        report.insert("provider".into(), (&*self.provider).into());
        report.insert("passed".into(), (self.verdict() == Verdict::Passed).into());
        let verdict = match self.verdict() {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Undecided => "undecided",
        };
        report.insert("verdict".into(), verdict.into());
        report.insert("checks".into(), self.rows.iter().map(Row::to_json).collect());
        report.insert("notes".into(), self.notes.iter().map(String::as_str).collect());
        report.insert("model".into(), self.model.as_deref().into());
        report.insert("figures".into(), self.figures.to_json());
        report
    }
}

impl Figures {
    /// As reports and certificates have them.
    pub fn to_json(&self) -> Value {
        let milliseconds = |at: usize| self.took.get(at).map(|took| took.as_millis() as u64);
        json!({
            "calls": self.calls,
            "answers": self.took.len(),
            "median_ms": milliseconds(self.took.len() / 2),
            "longest_ms": self.took.len().checked_sub(1).and_then(milliseconds),
            "input_tokens": self.tokens.0,
            "output_tokens": self.tokens.1,
            "prompt": self.prompt.map(|prompt| json!({
                "unit": if prompt.in_tokens { "token" } else { "byte" },
                "least": prompt.least,
                "most": prompt.most,
            })),
        })
    }
}

/// An output as a report quotes it.
pub(super) fn quote(output: &Value) -> String {
    let text = match output {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => output.to_string(),
    };
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
