//! Checks 3, 4 and 5: every case, as often as the contract says, in every output mode that production may
//! use, by the very functions that judge production's answers.

use std::sync::Arc;

use onejob_core::Meaning;
use serde_json::Value;

use super::report::{Check, Row, quote};
use super::verify::{Ask, Caller, Came, Found, Run, Subject, reported, says_nothing};
use super::{Breach, prompt};
use crate::config::{Case, Chat, OutputMode};
use crate::provider::Answer;

/// Makes the calls and judges what comes.
pub(super) async fn check<C: Caller>(run: &Run<'_, C>, found: &mut Found) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, mode) in modes(run).into_iter().enumerate() {
        match mode {
            Mode::NotThere(mode) => {
                let why = format!("the provider cannot be asked in the mode {}", mode.as_str());
                rows.push(Row { mode: Some(mode), ..Row::skipped(Check::Structure, None, why) });
            }
            Mode::Asked(mode) => rows.extend(in_mode(run, mode, at == 0, found).await),
        }
    }
    rows
}

/// A mode to verify.
enum Mode {
    /// It can be asked for; absent where the provider is told none.
    Asked(Option<OutputMode>),
    /// The contract names it and the provider has none of it.
    NotThere(OutputMode),
}

/// The mode that production uses, and those that the contract adds.
fn modes<C: Caller>(run: &Run<'_, C>) -> Vec<Mode> {
    let Subject { contract, provider, task } = run.subject;
    let http = provider.http().filter(|http| run.chat().is_some() && !http.output_modes.is_empty());
    let Some(http) = http else {
        return std::iter::once(Mode::Asked(None)).chain(contract.modes.iter().copied().map(Mode::NotThere)).collect();
    };
    let own = http.settings.get("output_mode").and_then(Value::as_str).and_then(OutputMode::parse);
    let own = match own.unwrap_or(OutputMode::Text) {
        OutputMode::JsonSchema if task.output.schema.is_none() => OutputMode::Text,
        mode @ (OutputMode::Text | OutputMode::JsonObject | OutputMode::JsonSchema) => mode,
    };
    let others = contract
        .modes
        .iter()
        .copied()
        .filter(|mode| *mode != own)
        .map(|mode| if http.output_modes.contains(&mode) { Mode::Asked(Some(mode)) } else { Mode::NotThere(mode) });
    std::iter::once(Mode::Asked(Some(own))).chain(others).collect()
}

async fn in_mode<C: Caller>(
    run: &Run<'_, C>,
    mode: Option<OutputMode>,
    is_productions: bool,
    found: &mut Found,
) -> Vec<Row> {
    let Subject { contract, .. } = run.subject;
    let chat = run.chat().map(|chat| Arc::new(Chat { mode, ..(**chat).clone() }));
    let repeat = contract.repeat as usize;
    let asks = contract
        .cases
        .iter()
        .flat_map(|case| std::iter::repeat_n(Ask { input: case.input.clone(), chat: chat.clone() }, repeat));
    let came = run.call_all(asks.collect(), found).await;
    let mut rows = Vec::new();
    for (case, came) in contract.cases.iter().zip(came.chunks(repeat)) {
        rows.extend(judge(run.subject, mode, case, came));
        if mode.is_none_or(|mode| mode == OutputMode::Text) {
            came.iter().for_each(|came| found.sample(chat.as_ref(), &case.input, came));
        }
        let messages = chat.as_deref().filter(|_| is_productions).map(|chat| prompt::messages(chat, &case.input));
        if let Some(Ok(messages)) = messages {
            let counts = came.iter().filter_map(reported);
            counts.for_each(|reported| found.measure(run.tokenizer(), &messages, reported));
        }
    }
    rows
}

/// The rows of one case: what came of each of its runs.
fn judge(subject: Subject<'_>, mode: Option<OutputMode>, case: &Case, all: &[Came]) -> [Row; 3] {
    let row = |check| Row { mode, case: Some(case.name.clone()), ..Row::of(check) };
    let (mut structure, mut rules, mut round_trip) = (row(Check::Structure), row(Check::Rules), row(Check::RoundTrip));
    for came in all {
        match arrived(came) {
            Arrived::Nothing(why) => round_trip.leave_open(why),
            Arrived::No(why) => round_trip.fail(why, None),
            Arrived::Broken(why) => {
                round_trip.passed += 1;
                structure.fail(why, None);
            }
            Arrived::Output(output) => {
                round_trip.passed += 1;
                judge_output(subject, case, output, &mut structure, &mut rules);
            }
        }
    }
    for row in [&mut structure, &mut rules] {
        if row.passed + row.failed == 0 {
            row.skipped = Some("there was no output to look at".to_owned());
        }
    }
    if subject.task.output.rules.is_empty() && case.expect.is_empty() {
        rules = Row {
            skipped: Some("the task has no rules, and the case expects nothing".to_owned()),
            ..row(Check::Rules)
        };
    }
    [structure, rules, round_trip]
}

fn judge_output(subject: Subject<'_>, case: &Case, output: &Value, structure: &mut Row, rules: &mut Row) {
    let contract = &subject.task.output;
    let place = |pointer: &str| if pointer.is_empty() { String::new() } else { format!("at {pointer}: ") };
    let accepted = match contract.accept_structure(&case.input, output.clone()) {
        Ok(accepted) => accepted,
        Err(violation) => {
            let detail = format!("{}{violation}", place(&violation.pointer));
            return structure.fail(detail, Some(quote(output)));
        }
    };
    structure.passed += 1;
    let held = contract.accept_by_rules(&case.input, accepted, &contract.rules);
    let held = held.and_then(|accepted| contract.accept_by_rules(&case.input, accepted, &case.expect));
    match held {
        Ok(_) => rules.passed += 1,
        Err(violation) => rules.fail(violation.to_string(), Some(quote(output))),
    }
}

/// How far a call came.
pub(super) enum Arrived<'a> {
    /// It says nothing about the contract.
    Nothing(String),
    /// No answer, or one that says no.
    No(String),
    /// A whole answer without a whole output.
    Broken(String),
    /// An output.
    Output(&'a Value),
}

/// Tells it.
pub(super) fn arrived(came: &Came) -> Arrived<'_> {
    if let Some(why) = says_nothing(came) {
        return Arrived::Nothing(why);
    }
    match came {
        Came::NotMade(why) => Arrived::Nothing(why.clone()),
        Came::NotPrepared(failure) => Arrived::No(format!("the request cannot be made: {}", failure.message)),
        Came::Silent => Arrived::No("no answer within the task's attempt_timeout".to_owned()),
        Came::Answered { answer, .. } => match answer {
            Answer::Done { output, .. } => Arrived::Output(output),
            Answer::Accepted { .. } => Arrived::No(
                "the provider works in the background, and this version awaits no such work while it verifies"
                    .to_owned(),
            ),
            Answer::Broken { breach: Some(Breach::CutOff | Breach::NoOutput), message, .. } => {
                Arrived::Broken(message.to_string())
            }
            Answer::Broken { meaning, status, message, .. } => {
                let status = status.map_or_else(String::new, |status| format!(" {status}"));
                let word = match meaning {
                    Meaning::Failed(class) => class.as_str(),
                    Meaning::Unknown(cause) => cause.as_str(),
                };
                Arrived::No(format!("{word}{status}: {message}"))
            }
        },
    }
}
