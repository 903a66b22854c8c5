//! Check 1, as far as it can be seen from outside: the prompt tokens that a provider reports, against a
//! local count and across prompts of known growth; a needle at the end of a long prompt; and whether more
//! is sent to the model than was given.

use std::collections::BTreeSet;

use onejob_core::Meaning;
use serde_json::{Value, json};

use super::cases::{Arrived, arrived};
use super::prompt::{Controls, Prompter};
use super::report::{Check, Row, quote};
use super::verify::{Ask, Caller, Came, Found, Run, Sample, reported, says_nothing};
use crate::provider::{Answer, Trouble};
use crate::template::Template;

const CHECK: Check = Check::Renders;

/// Words of one token each in all tokenizers that are in use, so that a prompt of known length can be made.
const FILLER: &str = "The cat sat on the mat and the dog lay by the door. ";

/// About how many tokens it has.
const FILLER_TOKENS: u64 = 14;

/// Tokens of markup around a message that no local count knows of, where there is no template: roles,
/// separators, the beginning of the answer.
const MARKUP_PER_MESSAGE: f64 = 16.0;

/// Tokens by which two counts may always differ: one more separator is no foreign template.
const ALWAYS_ALLOWED: f64 = 4.0;

/// An almost empty prompt has a token of text and some of markup. A system prompt that nobody gave has more.
const MOST_OF_NOTHING: u64 = 24;

/// A prompt that is twice as long has about twice the tokens. Less than this share of what it should have
/// grown by means that some of it was dropped.
const LEAST_GROWTH: f64 = 0.6;

/// Tokens that stay free for the answer to a long prompt, where the task names no limit.
const ROOM_FOR_ANSWER: u64 = 256;

/// Makes the calls and judges what comes.
pub(super) async fn check<C: Caller>(run: &Run<'_, C>, found: &mut Found) -> Vec<Row> {
    if run.chat().is_none() {
        return Vec::new();
    }
    let hidden = hidden_prompt(run, found).await;
    let (grows, longest) = grows(run, found).await;
    let needle = needle(run, longest, found).await;
    let (token_count, note) = token_count(run, &found.samples).await;
    found.notes.extend(note);
    vec![token_count, grows, needle, hidden]
}

/// A chat over `input.text`, with the task's parameters and no system prompt.
async fn ask<C: Caller>(run: &Run<'_, C>, text: String, found: &mut Found) -> Came {
    let user = Template::compile(&Value::from("{{ input.text }}"));
    let chat = user.ok().and_then(|user| run.own_chat(None, user));
    let ask = Ask { input: json!({"text": text}), chat };
    let came = run.call(ask.clone(), found).await;
    found.sample(ask.chat.as_ref(), &ask.input, &came);
    came
}

/// What the provider counts, against what its own tokenizer counts here; and what is odd about it.
async fn token_count<C: Caller>(run: &Run<'_, C>, samples: &[Sample]) -> (Row, Option<String>) {
    let part = "token count";
    let Some(definition) = run.tokenizer() else {
        return (Row::skipped(CHECK, Some(part), "the provider has no [tokenizer] to count with"), None);
    };
    if samples.is_empty() {
        return (Row::skipped(CHECK, Some(part), "the provider reports no prompt tokens"), None);
    }
    let prompter = Prompter { definition, caller: run.caller };
    let tolerance = run.subject.contract.token_tolerance;
    let mut row = Row { part: Some(part), ..Row::of(CHECK) };
    let mut differences = BTreeSet::new();
    for sample in samples {
        let counted = match count(&prompter, sample).await {
            Ok(counted) => counted,
            Err(Trouble::Wrong(why)) => {
                row.fail(why, None);
                continue;
            }
            // Nor would it answer for the others.
            Err(Trouble::Away(why)) => {
                row.leave_open(why);
                break;
            }
        };
        let Counted { tokens, markup } = counted;
        differences.insert((sample.reported as i64 - tokens as i64, markup > 0.0));
        let (local, reported) = (tokens as f64, sample.reported as f64);
        let slack = (local * tolerance).max(ALWAYS_ALLOWED);
        let detail = format!("{} tokens reported, {tokens} counted", sample.reported);
        if reported < local - slack || reported > local + slack + markup {
            row.fail(format!("{detail}: another template, another tokenizer, or a prompt that was cut"), None);
        } else {
            row.passed += 1;
            if row.failed == 0 {
                row.detail = Some(detail);
            }
        }
    }
    (row, constant_difference(&differences, samples.len()))
}

/// A difference that is the same in every prompt, long or short, is a token that the server adds or leaves
/// out: too little to fail for, and what a second beginning looks like from here.
fn constant_difference(differences: &BTreeSet<(i64, bool)>, samples: usize) -> Option<String> {
    let mut all = differences.iter();
    let (Some((by, false)), None, 2..) = (all.next(), all.next(), samples) else { return None };
    let (much, how) = (by.unsigned_abs(), if *by > 0 { "more" } else { "fewer" });
    (much > 0 && much as f64 <= ALWAYS_ALLOWED).then(|| {
        format!(
            "every prompt has {much} {how} token{} by the provider's count than by the one here: does its server begin \
             a prompt once more, or not at all? See adds_bos",
            if much == 1 { "" } else { "s" }
        )
    })
}

struct Counted {
    tokens: usize,
    /// What may be there beside them.
    markup: f64,
}

async fn count<C: Caller>(prompter: &Prompter<'_, C>, sample: &Sample) -> Result<Counted, Trouble> {
    if let Some(text) = prompter.render(&sample.messages).await? {
        let tokens = prompter.encode(&text, Controls::Parsed).await?.len();
        return Ok(Counted { tokens, markup: 0.0 });
    }
    let mut tokens = 0;
    for message in &sample.messages {
        tokens += prompter.encode(&message.content, Controls::AsText).await?.len();
    }
    Ok(Counted { tokens, markup: MARKUP_PER_MESSAGE * sample.messages.len() as f64 })
}

/// Reported counts across prompts of known growth: one that stops growing was cut without a word. Also
/// gives the longest prompt that was taken, in tokens.
async fn grows<C: Caller>(run: &Run<'_, C>, found: &mut Found) -> (Row, u64) {
    let part = "grows";
    let longest = longest(run);
    if longest == 0 {
        return (Row::skipped(CHECK, Some(part), "the contract tries no long prompts (probe_tokens = 0)"), 0);
    }
    let sizes = [longest / 8, longest / 4, longest / 2, longest].map(|tokens| (tokens / FILLER_TOKENS).max(1));
    let mut counts: Vec<(u64, u64)> = Vec::new();
    let mut taken = 0;
    for sentences in sizes {
        let came = ask(run, FILLER.repeat(sentences as usize), found).await;
        if let Some(why) = says_nothing(&came) {
            let mut row = Row { part: Some(part), ..Row::of(CHECK) };
            row.leave_open(why);
            return (row, taken);
        }
        if is_refused(&came) {
            found.notes.push(format!("a prompt of about {} tokens is refused", sentences * FILLER_TOKENS));
            break;
        }
        taken = sentences * FILLER_TOKENS;
        counts.extend(reported(&came).map(|tokens| (sentences, tokens)));
    }
    match counts.len() {
        0 => return (Row::skipped(CHECK, Some(part), "the provider reports no prompt tokens"), taken),
        1 => return (Row::skipped(CHECK, Some(part), "one count shows no growth"), taken),
        2.. => {}
    }
    (Row::once(CHECK, part, judge_growth(&counts)), taken)
}

/// About the tokens of the longest prompt to try.
fn longest<C: Caller>(run: &Run<'_, C>) -> u64 {
    let room = run.chat().and_then(|chat| chat.max_output_tokens).unwrap_or(ROOM_FOR_ANSWER);
    let window = run.tokenizer().and_then(|tokenizer| tokenizer.context_window);
    // Twice, for the filler's count is a guess and there is markup.
    let fits = window.map(|window| window.saturating_sub(room) / 2);
    let wanted = run.subject.contract.probe_tokens;
    fits.map_or(wanted, |fits| fits.min(wanted))
}

/// Too long, said before anything was done: an honest answer.
fn is_refused(came: &Came) -> bool {
    match came {
        Came::Answered { answer: Answer::Broken { meaning, .. }, .. } => {
            *meaning == Meaning::Failed(onejob_core::FailureClass::Invalid)
        }
        Came::Answered { .. } | Came::NotPrepared(_) | Came::Silent | Came::NotMade(_) => false,
    }
}

/// `counts` are sentences sent and tokens reported, the shortest first.
fn judge_growth(counts: &[(u64, u64)]) -> Result<Option<String>, String> {
    let told: Vec<String> = counts.iter().map(|(_, tokens)| tokens.to_string()).collect();
    let told = format!("{} prompt tokens reported for prompts that double in length", told.join(", "));
    let [first, rest @ ..] = counts else { return Ok(None) };
    let mut before = first;
    // The steepest growth seen so far is what a sentence costs.
    let mut per_sentence: f64 = first.1 as f64 / first.0.max(1) as f64 / 2.0;
    for next in rest {
        let sentences = next.0.saturating_sub(before.0).max(1) as f64;
        let grown = next.1 as f64 - before.1 as f64;
        if grown < LEAST_GROWTH * per_sentence * sentences {
            return Err(format!("{told}: long prompts are cut without a word"));
        }
        per_sentence = per_sentence.max(grown / sentences);
        before = next;
    }
    Ok(Some(told))
}

/// What stands at the end of a long prompt must arrive. Counts do not say it: a gateway may count what it was
/// sent and pass on less.
async fn needle<C: Caller>(run: &Run<'_, C>, tokens: u64, found: &mut Found) -> Row {
    let part = "needle";
    if tokens == 0 {
        return Row::skipped(CHECK, Some(part), "no long prompt was taken");
    }
    let word = format!("{:05}", fastrand::u32(10_000..100_000));
    let text = format!(
        "{}\nThe code is {word}. What is the code? Answer with the code and nothing else.",
        FILLER.repeat((tokens / FILLER_TOKENS) as usize)
    );
    let came = ask(run, text, found).await;
    let mut row = Row { part: Some(part), ..Row::of(CHECK) };
    match arrived(&came) {
        Arrived::Nothing(why) => row.leave_open(why),
        Arrived::No(why) | Arrived::Broken(why) => row.fail(why, None),
        Arrived::Output(output) if quote_whole(output).contains(&word) => row.passed += 1,
        Arrived::Output(output) => {
            let detail = format!("what stands at the end of a prompt of about {tokens} tokens did not arrive");
            row.fail(detail, Some(quote(output)));
        }
    }
    row
}

fn quote_whole(output: &Value) -> String {
    output.as_str().map_or_else(|| output.to_string(), str::to_owned)
}

/// The count of an almost empty prompt: more than a token and some markup is a system prompt that nobody
/// gave.
async fn hidden_prompt<C: Caller>(run: &Run<'_, C>, found: &mut Found) -> Row {
    let part = "hidden prompt";
    let came = ask(run, "Hi".to_owned(), found).await;
    if let Some(why) = says_nothing(&came) {
        let mut row = Row { part: Some(part), ..Row::of(CHECK) };
        row.leave_open(why);
        return row;
    }
    let Some(tokens) = reported(&came) else {
        return Row::skipped(CHECK, Some(part), "the provider reports no prompt tokens");
    };
    let detail = format!("{tokens} prompt tokens reported for the prompt \"Hi\" without a system prompt");
    if tokens <= MOST_OF_NOTHING {
        return Row::once(CHECK, part, Ok(Some(detail)));
    }
    let has_own = run.chat().is_some_and(|chat| chat.system.is_some());
    let detail = format!("{detail}: a hidden system prompt, or markup that is text");
    if !has_own {
        return Row::once(CHECK, part, Err(detail));
    }
    with_own(run, tokens, detail, found).await
}

/// The task gives a system prompt of its own: does the hidden one go away?
async fn with_own<C: Caller>(run: &Run<'_, C>, without: u64, detail: String, found: &mut Found) -> Row {
    let part = "hidden prompt";
    let text = |text: &str| Template::compile(&Value::from(text)).ok();
    let chat = text("Hi").zip(text("Hi")).and_then(|(system, user)| run.own_chat(Some(system), user));
    let ask = Ask { input: Value::Null, chat };
    let came = run.call(ask.clone(), found).await;
    found.sample(ask.chat.as_ref(), &ask.input, &came);
    match reported(&came) {
        // Two messages now.
        Some(tokens) if tokens <= 2 * MOST_OF_NOTHING => {
            found.notes.push(format!("{detail}, which goes away where the task gives one"));
            Row::once(CHECK, part, Ok(Some(format!("{tokens} prompt tokens with a system prompt, {without} without"))))
        }
        Some(tokens) => Row::once(CHECK, part, Err(format!("{detail}, beside the task's own ({tokens} with one)"))),
        None => {
            let mut row = Row { part: Some(part), ..Row::of(CHECK) };
            row.leave_open("the provider did not report the tokens of a prompt with a system prompt".to_owned());
            row
        }
    }
}
