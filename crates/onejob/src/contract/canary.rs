//! Check 2: chats of our own that only a provider which honours the system prompt passes.

use std::sync::LazyLock;

use onejob_core::Text;
use serde_json::{Value, json};

use super::OutputContract;
use super::cases::{Arrived, arrived};
use super::report::{Check, Row, quote};
use super::verify::{Ask, Caller, Found, Run};
use crate::template::{Rule, Template};

/// Words that no answer holds by accident.
const WORDS: [&str; 8] = ["saffron", "gantry", "ocelot", "turnstile", "marzipan", "bassoon", "quagmire", "periwinkle"];

/// The built-in canary: the user asks for one thing, the system prompt for another.
static BUILT_IN: LazyLock<Option<BuiltIn>> = LazyLock::new(|| {
    let text = |text: &str| Template::compile(&Value::from(text)).ok();
    let rule = "input.word in output | lower";
    Some(BuiltIn {
        system: text("Whatever the user says, answer with the word {{ input.word }} and nothing else.")?,
        user: text("What is the capital of France?")?,
        expect: vec![(rule.to_owned(), Rule::compile(rule).ok()?)],
    })
});

struct BuiltIn {
    system: Template,
    user: Template,
    expect: Vec<(String, Rule)>,
}

struct Asked<'a> {
    name: Text,
    system: &'a Template,
    user: &'a Template,
    input: Value,
    expect: &'a [(String, Rule)],
}

/// Makes the calls and judges what comes.
pub(super) async fn check<C: Caller>(run: &Run<'_, C>, found: &mut Found) -> Vec<Row> {
    let skipped = |why: &str| vec![Row::skipped(Check::SystemPrompt, None, why)];
    let Some(chat) = run.chat() else { return skipped("the provider is not sent a chat") };
    let own = run.subject.contract.canaries.iter().map(|canary| Asked {
        name: canary.name.clone(),
        system: &canary.system,
        user: &canary.user,
        input: canary.input.clone(),
        expect: &canary.expect,
    });
    let mut asked: Vec<Asked<'_>> = own.collect();
    if asked.is_empty() && chat.system.is_some() {
        asked.extend(BUILT_IN.as_ref().map(|BuiltIn { system, user, expect }| Asked {
            name: "built in".into(),
            system,
            user,
            input: json!({"word": WORDS[fastrand::usize(..WORDS.len())]}),
            expect,
        }));
    }
    if asked.is_empty() {
        return skipped("the task has no system prompt");
    }
    let asks: Vec<Ask> = asked
        .iter()
        .map(|canary| Ask {
            input: canary.input.clone(),
            chat: run.own_chat(Some(canary.system.clone()), canary.user.clone()),
        })
        .collect();
    let came = run.call_all(asks.clone(), found).await;
    asks.iter().zip(&came).for_each(|(ask, came)| found.sample(ask.chat.as_ref(), &ask.input, came));
    asked.iter().zip(&came).map(|(canary, came)| judge(canary, arrived(came))).collect()
}

fn judge(canary: &Asked<'_>, arrived: Arrived<'_>) -> Row {
    let mut row = Row { case: Some(canary.name.clone()), ..Row::of(Check::SystemPrompt) };
    match arrived {
        Arrived::Nothing(why) => row.leave_open(why),
        Arrived::No(why) | Arrived::Broken(why) => row.fail(why, None),
        Arrived::Output(output) => {
            // Whatever the task's output is, here it is text.
            let text = match output {
                Value::String(text) => Value::from(text.as_str()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Value::from(output.to_string())
                }
            };
            match OutputContract::default().accept_by_rules(&canary.input, text, canary.expect) {
                Ok(_) => row.passed += 1,
                Err(violation) => {
                    let detail = format!("the system prompt was not honoured: {violation}");
                    row.fail(detail, Some(quote(output)));
                }
            }
        }
    }
    row
}
