//! Text to tokens and back, as a provider does it: from a Hugging Face `tokenizer.json`, or by one of the
//! encodings that OpenAI publishes.

use kitoken::{Kitoken, SpecialTokenKind};
use tiktoken_rs::CoreBPE;

/// Makes an encoding ready, once.
type Open = fn() -> &'static CoreBPE;

/// The encodings that are known by name.
const ENCODINGS: [(&str, Open); 4] = [
    ("cl100k_base", tiktoken_rs::cl100k_base_singleton),
    ("o200k_base", tiktoken_rs::o200k_base_singleton),
    ("o200k_harmony", tiktoken_rs::o200k_harmony_singleton),
    ("p50k_base", tiktoken_rs::p50k_base_singleton),
];

/// A tokenizer, ready.
pub struct Tokenizer {
    kind: Kind,
    specials: Vec<Special>,
}

enum Kind {
    File(Box<Kitoken>),
    Encoding(&'static CoreBPE),
}

/// A control token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Special {
    /// How it is written in a rendered prompt.
    pub text: String,
    /// Its number.
    pub id: u32,
}

/// What becomes of the text of a control token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Controls {
    /// It becomes the control token, as where a rendered prompt is encoded whole.
    Parsed,
    /// It stays text.
    AsText,
}

impl Tokenizer {
    /// Reads a Hugging Face `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with it.
    pub fn from_file(bytes: &[u8]) -> Result<Tokenizer, String> {
        let definition = kitoken::convert::convert_tokenizers(bytes)
            .map_err(|error| format!("is no tokenizer file (tokenizer.json): {error}"))?;
        let special = |token: &kitoken::SpecialToken| {
            let text = String::from_utf8(token.bytes.clone()).ok()?;
            (token.kind == SpecialTokenKind::Control).then_some(Special { text, id: token.id })
        };
        let specials = definition.specials.iter().filter_map(special).collect();
        let tokenizer = Kitoken::from_definition(definition).map_err(|error| format!("cannot be used: {error}"))?;
        Ok(Tokenizer { kind: Kind::File(Box::new(tokenizer)), specials })
    }

    /// An encoding by its name.
    ///
    /// # Errors
    ///
    /// The names that there are.
    pub fn from_encoding(name: &str) -> Result<Tokenizer, String> {
        let Some((_, open)) = ENCODINGS.iter().find(|(known, _)| *known == name) else {
            let names: Vec<String> = ENCODINGS.iter().map(|(name, _)| format!("{name:?}")).collect();
            return Err(format!("expected one of {}, found {name:?}", names.join(", ")));
        };
        let encoding = open();
        let special = |text: &str| {
            let tokens = encoding.encode_with_special_tokens(text);
            match tokens[..] {
                [id] => Some(Special { text: text.to_owned(), id }),
                _ => None,
            }
        };
        let mut specials: Vec<Special> = encoding.special_tokens().into_iter().filter_map(special).collect();
        specials.sort_by_key(|special| special.id);
        Ok(Tokenizer { kind: Kind::Encoding(encoding), specials })
    }

    /// Text to tokens.
    ///
    /// # Errors
    ///
    /// A sentence: something in it has no token.
    pub fn encode(&self, text: &str, controls: Controls) -> Result<Vec<u32>, String> {
        match (&self.kind, controls) {
            (Kind::File(tokenizer), _) => tokenizer
                .encode(text, controls == Controls::Parsed)
                .map_err(|error| format!("the prompt cannot be encoded: {error}")),
            (Kind::Encoding(encoding), Controls::Parsed) => Ok(encoding.encode_with_special_tokens(text)),
            (Kind::Encoding(encoding), Controls::AsText) => Ok(encoding.encode_ordinary(text)),
        }
    }

    /// Tokens to text, control tokens written out.
    ///
    /// # Errors
    ///
    /// A sentence: a token has no text, or the texts make no UTF-8.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        let bytes = match &self.kind {
            Kind::File(tokenizer) => tokenizer.decode(tokens, true).map_err(|error| error.to_string()),
            Kind::Encoding(encoding) => encoding.decode_bytes(tokens).map_err(|error| error.to_string()),
        };
        let bytes = bytes.map_err(|error| format!("the tokens cannot be decoded: {error}"))?;
        String::from_utf8(bytes).map_err(|_| "the decoded tokens are no UTF-8".to_owned())
    }

    /// Its control tokens.
    pub fn specials(&self) -> &[Special] {
        &self.specials
    }

    /// How many control tokens are among these.
    pub fn count_controls(&self, tokens: &[u32]) -> usize {
        tokens.iter().filter(|id| self.specials.iter().any(|special| special.id == **id)).count()
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("specials", &self.specials.len()).finish_non_exhaustive()
    }
}
