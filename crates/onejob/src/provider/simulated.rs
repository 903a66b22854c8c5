//! A provider in this process that misbehaves on demand and keeps a ledger of what it was asked to
//! do: for demos, and for tests of everything above it.
//!
//! How it behaves comes from a template, by default `{{ input.simulate }}`, that renders to an
//! object:
//!
//! | member | meaning |
//! |---|---|
//! | `delay_ms` | works that long before anything else happens |
//! | `output` | the output of a good answer; `{"ok": true}` without it |
//! | `model`, `usage` | what a good answer reports: a string, and `{"input_tokens", "output_tokens"}` |
//! | `status`, `retry_after_s` | answers with this status outside 2xx, and asks for this delay |
//! | `fail` | reports, with this message, that the work failed |
//! | `not_sent` | `true`: no connection, nothing is sent |
//! | `lose_connection` | `true`: does the work, and the connection breaks before the answer |
//! | `cut_short` | `true`: does the work, and the answer comes half |
//! | `hang` | `true`: does the work and never answers |
//! | `then` | `{"after": n, "do": {…}}`: after n calls for this job, behaves like that instead |
//!
//! At most one of `status`, `fail`, `not_sent`, `lose_connection`, `cut_short`, `hang` is given.
//! Without an object it gives a good answer at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onejob_core::{Failure, FailureClass, JobId, Meaning, Observation, Phase, Seen, Text, Usage, meaning_of};
use serde_json::{Map, Value, json};

use super::{Answer, CallInput, Progress, base_scope};
use crate::config::SimulatedDefinition;
use crate::template::Template;

/// The longest delay, in milliseconds: a day is as good as `hang`.
const LONGEST_DELAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How deep `then` may nest.
const MOST_STAGES: usize = 16;

/// A provider that is not there.
pub struct SimulatedProvider {
    behaviour: Template,
    ledger: Mutex<Ledger>,
}

/// A call that is ready to be made.
#[derive(Clone, Debug)]
pub struct PreparedCall {
    job: JobId,
    behaviour: Behaviour,
}

#[derive(Default)]
struct Ledger {
    jobs: HashMap<JobId, Counts>,
    executions: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    calls: u64,
    executions: u64,
}

#[derive(Clone, PartialEq, Debug)]
struct Behaviour {
    delay: Duration,
    ending: Ending,
    then: Option<(u64, Box<Behaviour>)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Ending {
    Good { output: Value, seen: Seen },
    Status { code: u16, retry_after_ms: Option<u64> },
    Fails { message: Text },
    NotSent,
    LosesConnection,
    CutShort,
    Hangs,
}

impl SimulatedProvider {
    /// Makes a provider ready.
    ///
    /// # Errors
    ///
    /// None today; a sentence for people, as for every other kind.
    pub fn open(name: &str, definition: &SimulatedDefinition) -> Result<SimulatedProvider, String> {
        let behaviour = match &definition.behaviour {
            Some(template) => template.clone(),
            None => Template::compile(&json!("{{ input.simulate }}")).map_err(|e| format!("provider {name}: {e}"))?,
        };
        Ok(SimulatedProvider { behaviour, ledger: Mutex::default() })
    }

    /// Renders and reads the behaviour.
    ///
    /// # Errors
    ///
    /// A certain failure of class `invalid` that names the member that is not understood.
    pub fn prepare(&self, call: &CallInput) -> Result<PreparedCall, Failure> {
        let invalid = |message: String| Failure { message: message.into(), ..Failure::from(FailureClass::Invalid) };
        let rendered = self.behaviour.render(&base_scope(call, Some(call.input.clone())));
        let rendered =
            rendered.map_err(|error| invalid(format!("behaviour{} does not render: {error}", error.path)))?;
        let behaviour = match rendered {
            None | Some(Value::Null) => Ok(Behaviour::good()),
            Some(Value::Object(members)) => Behaviour::read(members, MOST_STAGES),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err("behaviour: expected an object".to_owned())
            }
        };
        Ok(PreparedCall { job: call.job, behaviour: behaviour.map_err(invalid)? })
    }

    /// Behaves. Like a real provider it goes on working when nobody listens any more: what it has
    /// begun is in the ledger, even if this future is dropped.
    pub async fn send(&self, call: PreparedCall, progress: &Progress) -> Answer {
        let Behaviour { delay, ending, then: _ } = self.enter(call.job, call.behaviour);
        if ending == Ending::NotSent {
            tokio::time::sleep(delay).await;
            return broken(Observation::Broken { phase: Phase::BeforeConnect }, None, "simulated: no connection");
        }
        progress.advance(Phase::AwaitingHeaders);
        tokio::time::sleep(delay).await;
        match ending {
            Ending::Good { output, seen } => {
                progress.advance(Phase::InBody);
                Answer::Done { output, seen }
            }
            Ending::Status { code, retry_after_ms } => {
                progress.advance(Phase::InBody);
                let observation = Observation::Status { code, retry_after: retry_after_ms.is_some() };
                broken(observation, retry_after_ms, "simulated: an answer with this status")
            }
            Ending::Fails { message } => {
                progress.advance(Phase::InBody);
                broken(Observation::FailedThere, None, &message)
            }
            Ending::LosesConnection => {
                let observation = Observation::Broken { phase: Phase::AwaitingHeaders };
                broken(observation, None, "simulated: the connection broke before the answer")
            }
            Ending::CutShort => {
                progress.advance(Phase::InBody);
                broken(Observation::CutShort, None, "simulated: the answer was cut short")
            }
            Ending::Hangs | Ending::NotSent => std::future::pending().await,
        }
    }

    /// How often the work of a job was begun.
    pub fn executions(&self, job: JobId) -> u64 {
        self.with_ledger(|ledger| ledger.jobs.get(&job).map_or(0, |counts| counts.executions))
    }

    /// How often any work was begun.
    pub fn total_executions(&self) -> u64 {
        self.with_ledger(|ledger| ledger.executions)
    }

    /// Writes the call down and chooses the stage of the behaviour that is due.
    fn enter(&self, job: JobId, mut behaviour: Behaviour) -> Behaviour {
        self.with_ledger(|ledger| {
            let counts = ledger.jobs.entry(job).or_default();
            while let Some((after, next)) = behaviour.then.take() {
                if counts.calls < after {
                    break;
                }
                behaviour = *next;
            }
            counts.calls += 1;
            if behaviour.ending.begins_work() {
                counts.executions += 1;
                ledger.executions += 1;
            }
            behaviour
        })
    }

    fn with_ledger<T>(&self, work: impl FnOnce(&mut Ledger) -> T) -> T {
        work(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Ending {
    /// Whether a provider that ends so has begun the work: all that the failure table does not call
    /// certainly undone.
    fn begins_work(&self) -> bool {
        match self {
            Ending::NotSent => false,
            Ending::Status { code, retry_after_ms } => {
                let observation = Observation::Status { code: *code, retry_after: retry_after_ms.is_some() };
                match meaning_of(&observation, &[]) {
                    Meaning::Failed(class) => !class.certainly_did_nothing(),
                    Meaning::Unknown(_) => true,
                }
            }
            Ending::Good { .. } | Ending::Fails { .. } | Ending::LosesConnection | Ending::CutShort | Ending::Hangs => {
                true
            }
        }
    }
}

impl Behaviour {
    fn good() -> Behaviour {
        let ending = Ending::Good { output: json!({"ok": true}), seen: Seen::default() };
        Behaviour { delay: Duration::ZERO, ending, then: None }
    }

    fn read(mut members: Map<String, Value>, stages_left: usize) -> Result<Behaviour, String> {
        let mut take = |name: &str| members.remove(name).filter(|value| !value.is_null());
        let delay_ms = take("delay_ms").map_or(Ok(0), |value| whole("delay_ms", &value, LONGEST_DELAY_MS))?;
        let output = take("output");
        let model = take("model").map(|value| text("model", value)).transpose()?;
        let usage = take("usage").map(read_usage).transpose()?;
        let status = take("status").map(|value| whole("status", &value, 599)).transpose()?;
        let retry_after_ms = take("retry_after_s").map(|value| milliseconds("retry_after_s", &value)).transpose()?;
        let fail = take("fail").map(|value| text("fail", value)).transpose()?;
        let flags = [
            ("not_sent", Ending::NotSent),
            ("lose_connection", Ending::LosesConnection),
            ("cut_short", Ending::CutShort),
            ("hang", Ending::Hangs),
        ];
        let mut endings = Vec::new();
        for (name, ending) in flags {
            if take(name).map_or(Ok(false), |value| truth(name, &value))? {
                endings.push(ending);
            }
        }
        endings.extend(fail.map(|message| Ending::Fails { message }));
        if let Some(status) = status {
            let code = u16::try_from(status).ok().filter(|code| (300..=599).contains(code));
            let code = code.ok_or("behaviour.status: expected a status from 300 to 599")?;
            endings.push(Ending::Status { code, retry_after_ms });
        }
        let then = take("then").map(|value| read_then(value, stages_left)).transpose()?;
        if let Some(stranger) = members.keys().next() {
            return Err(format!(
                "behaviour: the member {stranger:?} is not known; expected delay_ms, output, model, usage, status, \
                 retry_after_s, fail, not_sent, lose_connection, cut_short, hang or then"
            ));
        }
        if endings.len() > 1 {
            return Err(
                "behaviour: expected at most one of status, fail, not_sent, lose_connection, cut_short, hang".into()
            );
        }
        let ending = endings.pop().unwrap_or_else(|| Ending::Good {
            output: output.unwrap_or_else(|| json!({"ok": true})),
            seen: Seen { model, usage },
        });
        Ok(Behaviour { delay: Duration::from_millis(delay_ms), ending, then })
    }
}

fn read_then(value: Value, stages_left: usize) -> Result<(u64, Box<Behaviour>), String> {
    let expected = "behaviour.then: expected { after = 1, do = { … } }";
    let stages_left = stages_left.checked_sub(1).ok_or("behaviour.then: nests too deep")?;
    let Value::Object(mut members) = value else { return Err(expected.to_owned()) };
    let (after, then) = (members.remove("after"), members.remove("do"));
    match (after, then, members.is_empty()) {
        (Some(after), Some(Value::Object(then)), true) => {
            Ok((whole("then.after", &after, u64::MAX)?, Box::new(Behaviour::read(then, stages_left)?)))
        }
        _ => Err(expected.to_owned()),
    }
}

fn read_usage(value: Value) -> Result<Usage, String> {
    let expected = "behaviour.usage: expected { input_tokens = 1, output_tokens = 1 }";
    let Value::Object(mut members) = value else { return Err(expected.to_owned()) };
    let mut count =
        |name: &str| members.remove(name).map(|value| whole(&format!("usage.{name}"), &value, u64::MAX)).transpose();
    let usage = Usage { input_tokens: count("input_tokens")?, output_tokens: count("output_tokens")? };
    if members.is_empty() { Ok(usage) } else { Err(expected.to_owned()) }
}

fn whole(name: &str, value: &Value, most: u64) -> Result<u64, String> {
    let number = value.as_u64().filter(|number| *number <= most);
    number.ok_or_else(|| format!("behaviour.{name}: expected a whole number from 0 to {most}"))
}

fn milliseconds(name: &str, seconds: &Value) -> Result<u64, String> {
    let seconds = seconds.as_f64().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("behaviour.{name}: expected seconds from 0 to 86400"))?;
    Ok((seconds * 1000.0).ceil() as u64)
}

fn text(name: &str, value: Value) -> Result<Text, String> {
    match value {
        Value::String(text) => Ok(text.into()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(format!("behaviour.{name}: expected a string"))
        }
    }
}

fn truth(name: &str, value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("behaviour.{name}: expected true or false"))
}

fn broken(observation: Observation, retry_after_ms: Option<u64>, message: &str) -> Answer {
    let status = match observation {
        Observation::Status { code, .. } => Some(code),
        Observation::Broken { .. }
        | Observation::DeadlinePassed { .. }
        | Observation::CutShort
        | Observation::Undecodable
        | Observation::Incomplete
        | Observation::BreaksContract
        | Observation::FailedThere
        | Observation::Unbuildable => None,
    };
    Answer::Broken {
        meaning: meaning_of(&observation, &[]),
        status,
        retry_after_ms,
        message: message.into(),
        seen: Seen::default(),
        breach: None,
    }
}
