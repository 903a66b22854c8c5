//! What in production says that a certificate holds no more.

#[cfg(test)]
mod tests;

use onejob_core::{Seen, Text};
use serde_json::Value;

use super::prompt;
use super::verify::measured;
use crate::config::ProviderConfig;
use crate::json;
use crate::provider::CallInput;
use crate::store::Certificate;

/// Tokens by which a count may always be off: a short prompt has more markup than text.
const ALWAYS_ALLOWED_TOKENS: f64 = 8.0;

/// The same where prompts are measured in bytes.
const ALWAYS_ALLOWED_BY_BYTES: f64 = 64.0;

/// How far the tokens of a byte may be from all that was seen in the cases: other languages have other words.
const BYTES_FACTOR: f64 = 3.0;

/// The same for tokens that are counted here, unless the certificate names another tolerance.
const TOKENS_TOLERANCE: f64 = 0.1;

/// Whether an answer shows that the provider is not what it was certified as: a sentence if so.
pub fn drift(certificate: &Certificate, provider: &ProviderConfig, call: &CallInput, seen: &Seen) -> Option<String> {
    of_model(certificate.model.as_ref(), seen).or_else(|| of_tokens(&certificate.detail, provider, call, seen))
}

fn of_model(certified: Option<&Text>, seen: &Seen) -> Option<String> {
    let (certified, now) = (certified?, seen.model.as_ref()?);
    (certified != now).then(|| format!("the answer is of the model {now:?}, and {certified:?} was certified"))
}

fn of_tokens(detail: &str, provider: &ProviderConfig, call: &CallInput, seen: &Seen) -> Option<String> {
    let reported = seen.usage?.input_tokens?;
    let chat = call.chat.as_deref().filter(|_| provider.reads_chat())?;
    let detail = json::parse_stored(detail).ok()?;
    let prompt = detail.get("figures")?.get("prompt")?;
    let (least, most) = (prompt.get("least")?.as_f64()?, prompt.get("most")?.as_f64()?);
    let in_tokens = prompt.get("unit").and_then(Value::as_str) == Some("token");
    let messages = prompt::messages(chat, &call.input).ok()?;
    let definition = provider.http().and_then(|http| http.tokenizer.as_deref()).filter(|_| in_tokens);
    let (measure, measured_in_tokens) = measured(definition, &messages)?;
    if measured_in_tokens != in_tokens {
        return None;
    }
    let (low, high, slack) = if in_tokens {
        let tolerance = detail.get("token_tolerance").and_then(Value::as_f64).unwrap_or(TOKENS_TOLERANCE);
        (least * (1.0 - tolerance), most * (1.0 + tolerance), ALWAYS_ALLOWED_TOKENS)
    } else {
        (least / BYTES_FACTOR, most * BYTES_FACTOR, ALWAYS_ALLOWED_BY_BYTES)
    };
    let (from, to) = ((measure * low - slack).max(0.0), measure * high + slack);
    let unit = if in_tokens { "tokens" } else { "bytes" };
    (!(from..=to).contains(&(reported as f64))).then(|| {
        format!(
            "the provider reports {reported} prompt tokens for a prompt of {measure} {unit}; by its certificate {} to \
             {} were expected",
            from.floor(),
            to.ceil()
        )
    })
}
