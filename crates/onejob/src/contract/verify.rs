//! A run of a task's contract against a provider, through whoever makes the calls: in production the
//! engine, by the path that every attempt takes.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use onejob_core::{Failure, FailureClass, Meaning, Seen, Text};
use serde_json::Value;

use super::prompt::{self, Message};
use super::report::{Figures, PromptFigures, Report, Row, Tally};
use super::{canary, cases, probes, renders};
use crate::config::{Chat, Contract, OutputMode, ProviderConfig, Task, TokenizerDefinition};
use crate::provider::{Answer, Trouble};
use crate::template::Template;

/// What is verified.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The task.
    pub task: &'a Task,
    /// Its contract.
    pub contract: &'a Contract,
    /// The provider.
    pub provider: &'a ProviderConfig,
}

/// One call that a verification wants made.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The input.
    pub input: Value,
    /// The chat, where the provider is sent one.
    pub chat: Option<Arc<Chat>>,
}

/// What came of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Came {
    /// An answer, in this time.
    Answered {
        /// What the provider said.
        answer: Answer,
        /// How long that took.
        took: Duration,
    },
    /// The request could not be made.
    NotPrepared(Failure),
    /// No answer within the task's time.
    Silent,
    /// It was not made, or not awaited to its end: the node stops, or no slot was free for too long.
    NotMade(String),
}

/// Whoever makes the calls.
pub trait Caller: Sync {
    /// Makes a call as production makes it.
    fn call(&self, ask: Ask) -> impl Future<Output = Came> + Send;

    /// Asks a page beside the one that does the work, such as a tokenizer; `sibling` is another last
    /// segment of its path.
    fn beside(
        &self,
        url: &Template,
        sibling: Option<&'static str>,
        body: Value,
    ) -> impl Future<Output = Result<Value, Trouble>> + Send;
}

/// Runs all checks. `at_once` bounds the calls in flight; `tally` says how far it is.
pub async fn verify<C: Caller>(subject: Subject<'_>, caller: &C, at_once: usize, tally: &Tally) -> Report {
    let run = Run { subject, caller, at_once: at_once.max(1), tally, told_nothing: OnceLock::new() };
    let mut found = Found::default();
    let rows = [
        renders::check(&run).await,
        canary::check(&run, &mut found).await,
        cases::check(&run, &mut found).await,
        probes::check(&run, &mut found).await,
    ];
    let mut rows = rows.into_iter().flatten().collect::<Vec<Row>>();
    rows.extend(found.of_models(subject));
    // By check, and within a check as they were tried.
    rows.sort_by_key(|row| row.check);
    found.report(subject, rows)
}

/// A verification that is going on.
pub(super) struct Run<'a, C> {
    pub(super) subject: Subject<'a>,
    pub(super) caller: &'a C,
    at_once: usize,
    tally: &'a Tally,
    /// Why the run is undecided already, once a call told nothing.
    told_nothing: OnceLock<String>,
}

/// What all calls showed, beside their answers.
#[derive(Default)]
pub(super) struct Found {
    models: BTreeSet<Text>,
    answers: u32,
    without_model: u32,
    without_usage: u32,
    figures: Figures,
    pub(super) samples: Vec<Sample>,
    pub(super) notes: Vec<String>,
}

/// A prompt and the tokens that the provider counted in it.
pub(super) struct Sample {
    pub(super) messages: Vec<Message>,
    pub(super) reported: u64,
}

impl<C: Caller> Run<'_, C> {
    /// Makes calls, a bounded number at once, and gives what came of them in their order.
    pub(super) async fn call_all(&self, asks: Vec<Ask>, found: &mut Found) -> Vec<Came> {
        self.tally.expect(asks.len());
        let calls = asks.into_iter().map(|ask| async {
            let came = match self.told_nothing.get() {
                // The run proves nothing any more, and every further call is waited for, or paid.
                Some(why) => Came::NotMade(why.clone()),
                None => self.caller.call(ask).await,
            };
            if let Some(why) = says_nothing(&came) {
                self.told_nothing.get_or_init(|| why);
            }
            self.tally.one_done();
            came
        });
        let came: Vec<Came> = stream::iter(calls).buffered(self.at_once).collect().await;
        came.iter().for_each(|came| found.saw(came));
        came
    }

    /// Makes one call.
    pub(super) async fn call(&self, ask: Ask, found: &mut Found) -> Came {
        self.call_all(vec![ask], found).await.pop().unwrap_or_else(|| Came::NotMade("no call".to_owned()))
    }

    /// The chat of the task, if the provider is sent one.
    pub(super) fn chat(&self) -> Option<&Arc<Chat>> {
        self.subject.task.chat.as_ref().filter(|_| self.subject.provider.reads_chat())
    }

    /// Why there is no chat to check.
    pub(super) fn no_chat(&self) -> &'static str {
        "the provider is not sent a chat: there is no prompt of ours to look at"
    }

    /// The provider's tokenizer, if it has one.
    pub(super) fn tokenizer(&self) -> Option<&TokenizerDefinition> {
        self.subject.provider.http()?.tokenizer.as_deref()
    }

    /// A chat of our own, with the parameters of the task's.
    pub(super) fn own_chat(&self, system: Option<Template>, user: Template) -> Option<Arc<Chat>> {
        let chat = self.chat()?;
        Some(Arc::new(Chat { system, user, mode: Some(OutputMode::Text), schema: None, ..(**chat).clone() }))
    }
}

impl Found {
    fn saw(&mut self, came: &Came) {
        self.figures.calls += u32::from(!matches!(came, Came::NotMade(_)));
        let Came::Answered { answer, took } = came else { return };
        let Some(seen) = seen(answer) else { return };
        self.answers += 1;
        self.figures.took.push(*took);
        match &seen.model {
            Some(model) => drop(self.models.insert(model.clone())),
            None => self.without_model += 1,
        }
        match seen.usage {
            Some(usage) if usage.input_tokens.is_some() => {
                self.figures.tokens.0 += usage.input_tokens.unwrap_or_default();
                self.figures.tokens.1 += usage.output_tokens.unwrap_or_default();
            }
            Some(_) | None => self.without_usage += 1,
        }
    }

    /// Keeps how the reported prompt tokens of an answer relate to what can be measured of its prompt, asked
    /// as production asks.
    pub(super) fn measure(&mut self, definition: Option<&TokenizerDefinition>, messages: &[Message], reported: u64) {
        let Some((measured, in_tokens)) = measured(definition, messages) else { return };
        let ratio = reported as f64 / measured;
        let prompt = self.figures.prompt.get_or_insert(PromptFigures { in_tokens, least: ratio, most: ratio });
        prompt.least = prompt.least.min(ratio);
        prompt.most = prompt.most.max(ratio);
    }

    /// Keeps a prompt that went out as it stands, with nothing added for the form of the output.
    pub(super) fn sample(&mut self, chat: Option<&Arc<Chat>>, input: &Value, came: &Came) {
        if let (Some(chat), Some(reported)) = (chat, reported(came))
            && let Ok(messages) = prompt::messages(chat, input)
        {
            self.samples.push(Sample { messages, reported });
        }
    }

    /// One run, one model: what answers under several names is several providers.
    fn of_models(&mut self, subject: Subject<'_>) -> Option<Row> {
        if self.answers > 0 && self.without_model == self.answers {
            self.notes.push("the answers do not say which model gave them: another model would not be noticed".into());
        }
        if self.answers > 0 && self.without_usage == self.answers && subject.provider.reads_chat() {
            self.notes.push(
                "the answers do not say how many tokens their prompts had: a foreign template or a cut prompt can \
                 only be seen by what it does"
                    .into(),
            );
        }
        if let Some(asked) = subject.provider.http().and_then(|http| http.settings.get("model")).and_then(Value::as_str)
            && let Some(answered) = self.models.iter().find(|model| !model.starts_with(asked))
        {
            self.notes.push(format!("asked for the model {asked:?}, answered by one that calls itself {answered:?}"));
        }
        if self.models.len() < 2 {
            return None;
        }
        let names: Vec<String> = self.models.iter().map(|model| format!("{model:?}")).collect();
        let detail = format!("the answers name {} models: {}", names.len(), names.join(", "));
        Some(Row::once(super::report::Check::RoundTrip, "one model", Err(detail)))
    }

    fn report(mut self, subject: Subject<'_>, rows: Vec<Row>) -> Report {
        self.figures.took.sort();
        let model = if self.models.len() == 1 { self.models.pop_first() } else { None };
        Report {
            task: subject.task.name.clone(),
            provider: subject.provider.name.clone(),
            rows,
            notes: self.notes,
            model,
            figures: self.figures,
        }
    }
}

/// What the provider reported about itself, if its answer came whole.
pub(super) fn seen(answer: &Answer) -> Option<&Seen> {
    match answer {
        Answer::Done { seen, .. } | Answer::Accepted { seen, .. } => Some(seen),
        Answer::Broken { seen, breach: Some(_), .. } => Some(seen),
        Answer::Broken { breach: None, .. } => None,
    }
}

/// The prompt tokens that were reported. No prompt has none: 0 is no report.
pub(super) fn reported(came: &Came) -> Option<u64> {
    let Came::Answered { answer, .. } = came else { return None };
    seen(answer)?.usage?.input_tokens.filter(|tokens| *tokens > 0)
}

/// Why a call that gave no output decides nothing; `None` if it decides against the provider.
pub(super) fn says_nothing(came: &Came) -> Option<String> {
    match came {
        Came::NotMade(why) => Some(why.clone()),
        Came::Answered { answer: Answer::Broken { meaning: Meaning::Failed(class), status, message, .. }, .. } => {
            let class = match class {
                FailureClass::Refused | FailureClass::NotSent => class,
                FailureClass::Invalid
                | FailureClass::FailedThere
                | FailureClass::BrokenContract
                | FailureClass::NotExecuted => return None,
            };
            let status = status.map_or_else(String::new, |status| format!(" {status}"));
            Some(format!("{}{status}: {message}", class.as_str()))
        }
        Came::Answered { .. } | Came::NotPrepared(_) | Came::Silent => None,
    }
}

/// How much prompt there is: tokens of a tokenizer that is here, or else bytes.
pub(super) fn measured(definition: Option<&TokenizerDefinition>, messages: &[Message]) -> Option<(f64, bool)> {
    let counted = definition.and_then(|definition| prompt::count(definition, messages).ok().flatten());
    let measured = match counted {
        Some(tokens) => (tokens as f64, true),
        None => (messages.iter().map(|message| message.content.len()).sum::<usize>() as f64, false),
    };
    (measured.0 > 0.0).then_some(measured)
}
