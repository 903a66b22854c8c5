//! Check 1, as far as the provider's own template and tokenizer are known here: the prompt renders, nothing
//! in an input becomes a control token, it begins once, comes back as it went in, and fits.

use serde_json::Value;

use super::leaks;
use super::prompt::{Controls, Message, Prompter, Special, messages};
use super::report::{Check, Row};
use super::verify::{Caller, Run};
use crate::config::{Chat, TokenizerDefinition};
use crate::provider::Trouble;

const CHECK: Check = Check::Renders;

/// Markup that is plain text to some of the very models that were trained on it.
const TEXT_BY_DESIGN: [&str; 5] = ["[/INST]", "<<SYS>>", "<|user|>", "<|assistant|>", "<|system|>"];

/// A prompt of a case, rendered and encoded.
struct Rendered {
    name: String,
    text: String,
    tokens: Vec<u32>,
}

/// Renders and encodes every case.
pub(super) async fn check<C: Caller>(run: &Run<'_, C>) -> Vec<Row> {
    let Some(chat) = run.chat() else { return vec![Row::skipped(CHECK, None, run.no_chat())] };
    let Some(definition) = run.tokenizer() else {
        let why = "the provider has no [tokenizer]: what its template makes of a prompt is only seen from outside";
        return vec![Row::skipped(CHECK, Some("template"), why)];
    };
    let prompter = Prompter { definition, caller: run.caller };
    let rendered = match render_all(run, chat, &prompter).await {
        Ok(Some(rendered)) => rendered,
        Ok(None) => {
            let why = "nothing says how the provider renders a chat: there is no chat_template";
            return vec![Row::skipped(CHECK, Some("template"), why)];
        }
        Err(trouble) => return vec![Row::troubled(CHECK, "template", trouble)],
    };
    let specials = match prompter.specials().await {
        Ok(specials) => specials,
        Err(trouble) => return vec![Row::troubled(CHECK, "template", trouble)],
    };
    vec![
        own_markup(run, chat, &prompter, &rendered).await,
        injection(run, chat, &prompter, &specials).await,
        begins_once(definition, &specials, &rendered),
        comes_back(&prompter, &rendered).await,
        fits(definition, chat, &rendered),
    ]
}

/// The markup of the template must be control tokens to the tokenizer: where it is text, the template was made
/// for another model. llama.cpp takes ChatML for a model file without a template.
async fn own_markup<C: Caller>(
    run: &Run<'_, C>,
    chat: &Chat,
    prompter: &Prompter<'_, C>,
    rendered: &[Rendered],
) -> Row {
    let part = "template";
    for (case, prompt) in run.subject.contract.cases.iter().zip(rendered) {
        let Ok(messages) = messages(chat, &case.input) else { continue };
        for marker in leaks::MARKERS.iter().filter(|marker| !TEXT_BY_DESIGN.contains(marker)) {
            // What a message holds was not put there by the template.
            let is_own =
                prompt.text.contains(marker) && !messages.iter().any(|message| message.content.contains(marker));
            if !is_own {
                continue;
            }
            match prompter.encode(marker, Controls::Parsed).await {
                Ok(tokens) if tokens.len() > 1 => {
                    let detail = format!(
                        "case {:?}: the chat template writes `{marker}`, and to the tokenizer that is {} tokens of text \
                         and no control token: the template of another model",
                        prompt.name,
                        tokens.len()
                    );
                    return Row::once(CHECK, part, Err(detail));
                }
                Ok(_) => {}
                Err(trouble) => return Row::troubled(CHECK, part, trouble),
            }
        }
    }
    Row::once(CHECK, part, Ok(None))
}

async fn render_all<C: Caller>(
    run: &Run<'_, C>,
    chat: &Chat,
    prompter: &Prompter<'_, C>,
) -> Result<Option<Vec<Rendered>>, Trouble> {
    let mut all = Vec::new();
    for case in &run.subject.contract.cases {
        let of_case = |trouble: Trouble| trouble.map(|why| format!("case {:?}: {why}", &*case.name));
        let messages = messages(chat, &case.input).map_err(|why| of_case(Trouble::Wrong(why)))?;
        let Some(text) = prompter.render(&messages).await.map_err(of_case)? else { return Ok(None) };
        let tokens = prompter.encode(&text, Controls::Parsed).await.map_err(of_case)?;
        all.push(Rendered { name: case.name.to_string(), text, tokens });
    }
    Ok(Some(all))
}

/// The text of every control token in every string of an input: none may become one.
async fn injection<C: Caller>(run: &Run<'_, C>, chat: &Chat, prompter: &Prompter<'_, C>, specials: &[Special]) -> Row {
    if specials.is_empty() {
        return Row::skipped(CHECK, Some("injection"), "the tokenizer has no control tokens");
    }
    let harmless = "x".to_owned();
    for case in &run.subject.contract.cases {
        let with = async |text: &str| {
            let messages = messages(chat, &salted(&case.input, text))?;
            controls(prompter, specials, &messages).await
        };
        let (before, after) = match (with(&harmless).await, with(&joined(specials)).await) {
            (Ok(before), Ok(after)) => (before, after),
            (Ok(_), Err(Trouble::Away(why))) => return Row::troubled(CHECK, "injection", Trouble::Away(why)),
            // A template may well refuse them.
            (Ok(_), Err(Trouble::Wrong(_))) => continue,
            (Err(trouble), _) => return Row::troubled(CHECK, "injection", trouble),
        };
        if after.len() > before.len() {
            let ids: Vec<u32> = after.into_iter().filter(|id| !before.contains(id)).collect();
            let named = specials.iter().filter(|special| ids.is_empty() || ids.contains(&special.id));
            let named: Vec<String> = named.take(5).map(|special| format!("`{}`", special.text)).collect();
            let detail = format!(
                "case {:?}: text of an input becomes control tokens, such as {}: whoever writes the input can end \
                 the user's message and begin one of the system; filter them in the task's chat templates",
                &*case.name,
                named.join(", ")
            );
            return Row::once(CHECK, "injection", Err(detail));
        }
    }
    Row::once(CHECK, "injection", Ok(None))
}

async fn controls<C: Caller>(
    prompter: &Prompter<'_, C>,
    specials: &[Special],
    messages: &[Message],
) -> Result<Vec<u32>, Trouble> {
    let Some(text) = prompter.render(messages).await? else { return Ok(Vec::new()) };
    let tokens = prompter.encode(&text, Controls::Parsed).await?;
    Ok(tokens.into_iter().filter(|id| specials.iter().any(|special| special.id == *id)).collect())
}

fn joined(specials: &[Special]) -> String {
    specials.iter().map(|special| special.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// An input with a text put before each of its strings.
fn salted(input: &Value, text: &str) -> Value {
    match input {
        Value::String(own) => Value::from(format!("{text} {own}")),
        Value::Array(elements) => elements.iter().map(|element| salted(element, text)).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), salted(value, text))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => input.clone(),
    }
}

/// Exactly one token that begins a prompt, at its beginning.
fn begins_once(definition: &TokenizerDefinition, specials: &[Special], rendered: &[Rendered]) -> Row {
    let part = "begins once";
    let Some(bos) = &definition.bos_token else {
        return Row::skipped(CHECK, Some(part), "the tokenizer names no bos_token");
    };
    let Some(id) = specials.iter().find(|special| special.text == *bos).map(|special| special.id) else {
        return Row::once(CHECK, part, Err(format!("the tokenizer has no control token {bos:?}")));
    };
    let wrong = rendered.iter().find_map(|prompt| {
        let count = prompt.tokens.iter().filter(|token| **token == id).count();
        let begins = prompt.tokens.first() == Some(&id);
        (count != 1 || !begins).then(|| {
            let how = if count == 1 { "not at its beginning".to_owned() } else { format!("{count} times") };
            format!("case {:?}: the prompt holds {bos:?} {how}", prompt.name)
        })
    });
    Row::once(CHECK, part, wrong.map_or(Ok(None), Err))
}

/// decode(encode(x)) = x.
async fn comes_back<C: Caller>(prompter: &Prompter<'_, C>, rendered: &[Rendered]) -> Row {
    let part = "comes back";
    for prompt in rendered {
        match prompter.decode(&prompt.tokens).await {
            Ok(text) if text == prompt.text => {}
            Ok(text) => {
                let at = text.bytes().zip(prompt.text.bytes()).take_while(|(a, b)| a == b).count();
                let detail = format!("case {:?}: the prompt comes back changed, from byte {at} on", prompt.name);
                return Row::once(CHECK, part, Err(detail));
            }
            Err(trouble) => {
                return Row::troubled(CHECK, part, trouble.map(|why| format!("case {:?}: {why}", prompt.name)));
            }
        }
    }
    Row::once(CHECK, part, Ok(None))
}

/// Prompt and output together are no longer than the window.
fn fits(definition: &TokenizerDefinition, chat: &Chat, rendered: &[Rendered]) -> Row {
    let part = "fits";
    let Some(window) = definition.context_window else {
        return Row::skipped(CHECK, Some(part), "the tokenizer names no context_window");
    };
    let output = chat.max_output_tokens.unwrap_or(0);
    let longest = rendered.iter().max_by_key(|prompt| prompt.tokens.len());
    let Some(longest) = longest else { return Row::skipped(CHECK, Some(part), "there are no cases") };
    let needed = longest.tokens.len() as u64 + output;
    let detail = format!(
        "case {:?}: {} tokens of prompt and {output} of output in a window of {window}",
        longest.name,
        longest.tokens.len()
    );
    Row::once(CHECK, part, if needed <= window { Ok(Some(detail)) } else { Err(detail) })
}
