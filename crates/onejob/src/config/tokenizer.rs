//! `[providers.*.tokenizer]`: how prompts are counted before they are sent.

use std::sync::Arc;

use serde_json::{Value, json};

use super::section::Item;
use super::text::Known;
use super::{hex, provider::url_template};
use crate::contract::{ChatTemplate, Tokenizer};
use crate::intent::digest;
use crate::template::Template;

/// `[providers.<name>.tokenizer]`.
#[derive(Debug)]
pub struct TokenizerDefinition {
    /// Where it is.
    pub source: TokenizerSource,
    /// How a chat becomes a prompt.
    pub chat_template: Option<ChatTemplate>,
    /// The token that begins every prompt.
    pub bos_token: Option<String>,
    /// The token that ends every text.
    pub eos_token: Option<String>,
    /// The server puts `bos_token` before what the template makes.
    pub adds_bos: bool,
    /// Tokens that fit, prompt and output together.
    pub context_window: Option<u64>,
    /// What a certificate says of it: SHA-256 of the tokenizer's and the template's bytes, in hexadecimal.
    pub digests: Value,
}

/// Where a tokenizer is.
#[derive(Debug)]
pub enum TokenizerSource {
    /// Here.
    Local(Arc<Tokenizer>),
    /// At the provider, which is asked.
    Endpoint(Template),
}

/// Reads it.
pub(super) fn read(item: &Item<'_>, known: &Known) -> Option<TokenizerDefinition> {
    let section = item.section("a table such as { encoding = \"o200k_base\" }")?;
    let (file, encoding, endpoint) = (section.get("file"), section.get("encoding"), section.get("endpoint"));
    if [&file, &encoding, &endpoint].into_iter().flatten().count() != 1 {
        section.error("expected exactly one of \"file\", \"encoding\", \"endpoint\"");
    }
    let file = file.map(|item| from_file(&item));
    let encoding = encoding.map(|item| from_encoding(&item));
    let endpoint = endpoint.map(|item| {
        let url = url_template(&item, known.request())?;
        Some((TokenizerSource::Endpoint(url), Value::Null))
    });
    let source = file.or(encoding).or(endpoint);
    let token = |key| section.get(key).and_then(|item| item.string("<s>").map(str::to_owned));
    let (bos_token, eos_token) = (token("bos_token"), token("eos_token"));
    let adds_bos = section.get("adds_bos").and_then(|item| {
        let adds = item.boolean()?;
        if adds && bos_token.is_none() {
            item.error("needs bos_token: it is what the server adds");
        }
        Some(adds)
    });
    let template = section.get("chat_template").map(|item| {
        let (path, bytes) = item.file("tokenizers/poster.jinja")?;
        let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned());
        let compiled = text.and_then(|text| {
            let compiled = ChatTemplate::compile(&text, bos_token.as_deref(), eos_token.as_deref())?;
            Ok((compiled, hex(&digest(text.as_bytes()))))
        });
        compiled.map_err(|message| item.error(format!("{} {message}", path.display()))).ok()
    });
    let context_window = section.get("context_window").and_then(|item| item.whole(1..=1_000_000_000, "of tokens"));
    section.end(&[]);
    let (source, tokenizer_digest) = source??;
    let (chat_template, template_digest) = match template {
        Some(read) => read.map(|(template, digest)| (Some(template), Some(digest)))?,
        None => (None, None),
    };
    let digests = json!({"tokenizer": tokenizer_digest, "chat_template": template_digest});
    let adds_bos = adds_bos.unwrap_or(false);
    Some(TokenizerDefinition { source, chat_template, bos_token, eos_token, adds_bos, context_window, digests })
}

fn from_file(item: &Item<'_>) -> Option<(TokenizerSource, Value)> {
    let (path, bytes) = item.file("tokenizers/poster.json")?;
    match Tokenizer::from_file(&bytes) {
        Ok(tokenizer) => Some((TokenizerSource::Local(Arc::new(tokenizer)), hex(&digest(&bytes)).into())),
        Err(message) => {
            item.error(format!("{} {message}", path.display()));
            None
        }
    }
}

fn from_encoding(item: &Item<'_>) -> Option<(TokenizerSource, Value)> {
    let name = item.string("o200k_base")?;
    match Tokenizer::from_encoding(name) {
        Ok(tokenizer) => Some((TokenizerSource::Local(Arc::new(tokenizer)), name.into())),
        Err(message) => {
            item.error(message);
            None
        }
    }
}
