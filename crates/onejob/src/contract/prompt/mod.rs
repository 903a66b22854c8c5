//! A prompt as the provider's own chat template and tokenizer make it.

mod template;
mod tokenizer;

#[cfg(test)]
pub(crate) mod tests;

pub use template::{ChatTemplate, Message};
pub use tokenizer::{Controls, Special, Tokenizer};

use serde_json::{Value, json};

use super::verify::Caller;
use crate::config::{Chat, TokenizerDefinition, TokenizerSource};
use crate::provider::Trouble;
use crate::template::Scope;

/// The system and user messages of a chat for an input.
///
/// # Errors
///
/// A sentence: a template of the task does not render.
pub(super) fn messages(chat: &Chat, input: &Value) -> Result<Vec<Message>, String> {
    let ids =
        |kind: &str| json!({"id": format!("{kind}_00000000000000000000000000"), "number": 1, "owner": "", "task": ""});
    let scope = Scope::new().with("input", input.clone()).with("job", ids("job")).with("attempt", ids("att"));
    let text = |name: &str, template: &crate::template::Template| match template.render(&scope) {
        Ok(None | Some(Value::Null)) => Ok(None),
        Ok(Some(Value::String(text))) => Ok(Some(text)),
        Ok(Some(other)) => Ok(Some(other.to_string())),
        Err(error) => Err(format!("chat.{name} does not render: {error}")),
    };
    let mut messages = Vec::new();
    if let Some(content) = chat.system.as_ref().map(|template| text("system", template)).transpose()?.flatten() {
        messages.push(Message { role: "system", content });
    }
    let content = text("user", &chat.user)?.ok_or("chat.user renders to nothing")?;
    messages.push(Message { role: "user", content });
    Ok(messages)
}

/// How many tokens a chat has by a tokenizer that is here; `None` if there is none here.
///
/// # Errors
///
/// A sentence: the template refuses the chat, or something has no token.
pub(super) fn count(definition: &TokenizerDefinition, messages: &[Message]) -> Result<Option<u64>, String> {
    let TokenizerSource::Local(tokenizer) = &definition.source else { return Ok(None) };
    let Some(template) = &definition.chat_template else {
        let counts = messages.iter().map(|message| tokenizer.encode(&message.content, Controls::AsText));
        let counts = counts.map(|tokens| tokens.map(|tokens| tokens.len() as u64));
        return counts.sum::<Result<u64, String>>().map(Some);
    };
    let tokens = tokenizer.encode(&definition.begun(template.render(messages)?), Controls::Parsed)?;
    Ok(Some(tokens.len() as u64))
}

impl TokenizerDefinition {
    /// A rendered prompt as the server hands it to its tokenizer.
    pub(super) fn begun(&self, prompt: String) -> String {
        match &self.bos_token {
            Some(bos) if self.adds_bos => format!("{bos}{prompt}"),
            Some(_) | None => prompt,
        }
    }
}

/// A tokenizer, wherever it is.
pub(super) struct Prompter<'a, C> {
    pub(super) definition: &'a TokenizerDefinition,
    pub(super) caller: &'a C,
}

impl<C: Caller> Prompter<'_, C> {
    /// The prompt of a chat; `None` if nothing says how the provider renders it.
    pub(super) async fn render(&self, messages: &[Message]) -> Result<Option<String>, Trouble> {
        if let Some(template) = &self.definition.chat_template {
            return Ok(Some(self.definition.begun(template.render(messages)?)));
        }
        let TokenizerSource::Endpoint(_) = self.definition.source else { return Ok(None) };
        let messages: Vec<Value> =
            messages.iter().map(|message| json!({"role": message.role, "content": message.content})).collect();
        // Not every server that has the one has the other.
        let answer = match self.ask(Some("apply-template"), json!({"messages": messages})).await {
            Ok(answer) => answer,
            Err(Trouble::Wrong(_)) => return Ok(None),
            Err(Trouble::Away(why)) => return Err(Trouble::Away(why)),
        };
        let prompt = answer.get("prompt").and_then(Value::as_str).map(str::to_owned);
        Ok(prompt.map(|prompt| self.definition.begun(prompt)))
    }

    pub(super) async fn encode(&self, text: &str, controls: Controls) -> Result<Vec<u32>, Trouble> {
        match &self.definition.source {
            TokenizerSource::Local(tokenizer) => Ok(tokenizer.encode(text, controls)?),
            TokenizerSource::Endpoint(_) => {
                // Two families of servers call the same things by two names; each ignores the other's.
                let parse = controls == Controls::Parsed;
                let body = json!({"content": text, "prompt": text, "parse_special": parse,
                    "add_special": false, "add_special_tokens": false});
                let answer = self.ask(None, body).await?;
                let tokens = answer.get("tokens").and_then(Value::as_array);
                let tokens = tokens.ok_or_else(|| wrong("the tokenizer's endpoint answers without `tokens`"))?;
                let id = |token: &Value| token.as_u64().and_then(|id| u32::try_from(id).ok());
                let ids = tokens.iter().map(|token| id(token).or_else(|| id(token.get("id")?)));
                ids.collect::<Option<_>>().ok_or_else(|| wrong("the tokenizer's endpoint answers with no token ids"))
            }
        }
    }

    pub(super) async fn decode(&self, tokens: &[u32]) -> Result<String, Trouble> {
        match &self.definition.source {
            TokenizerSource::Local(tokenizer) => Ok(tokenizer.decode(tokens)?),
            TokenizerSource::Endpoint(_) => {
                let answer = self.ask(Some("detokenize"), json!({"tokens": tokens})).await?;
                let text = answer.get("content").or_else(|| answer.get("prompt")).and_then(Value::as_str);
                text.map(str::to_owned).ok_or_else(|| wrong("the tokenizer's endpoint decodes to no text"))
            }
        }
    }

    /// The control tokens: the tokenizer's own, or of an endpoint those that turn out to be some.
    pub(super) async fn specials(&self) -> Result<Vec<Special>, Trouble> {
        if let TokenizerSource::Local(tokenizer) = &self.definition.source {
            return Ok(tokenizer.specials().to_vec());
        }
        let own = [&self.definition.bos_token, &self.definition.eos_token].into_iter().flatten().map(String::as_str);
        let mut specials: Vec<Special> = Vec::new();
        for text in own.chain(super::leaks::MARKERS) {
            if let [id] = self.encode(text, Controls::Parsed).await?[..]
                && specials.iter().all(|known| known.id != id)
            {
                specials.push(Special { text: text.to_owned(), id });
            }
        }
        Ok(specials)
    }

    async fn ask(&self, sibling: Option<&'static str>, body: Value) -> Result<Value, Trouble> {
        match &self.definition.source {
            TokenizerSource::Endpoint(url) => self.caller.beside(url, sibling, body).await,
            TokenizerSource::Local(_) => Err(wrong("this tokenizer has no endpoint")),
        }
    }
}

fn wrong(why: &str) -> Trouble {
    Trouble::Wrong(why.to_owned())
}
