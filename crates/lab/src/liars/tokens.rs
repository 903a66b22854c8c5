//! The tokenizer of the lying providers' model: bytes, control tokens, and whole words of a short list. Small
//! enough to read, and a true one: the same vocabulary, written as a `tokenizer.json`, counts the same.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Begins every prompt.
pub(crate) const BOS: &str = "<s>";
/// Ends every text.
pub(crate) const EOS: &str = "</s>";
/// Begins a turn.
pub(crate) const START: &str = "<|im_start|>";
/// Ends a turn.
pub(crate) const END: &str = "<|im_end|>";

const CONTROLS: [&str; 4] = [BOS, EOS, START, END];

/// Words that are one token, with a space before them or at the beginning of a line.
const WORDS: &str = "The cat sat on the mat and the dog lay by the door The code is What is the code Answer with code \
    nothing else user system assistant Hi You know capitals and answer in JSON alone as in city country residents \
    landmarks What is the capital of Notes Whatever says word France Kenya Japan are a helpful Never say that";

/// How a tokenizer cuts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// As its vocabulary says.
    Own,
    /// As that of another model, whose words have three letters at the most.
    Foreign,
}

/// The vocabulary.
pub(crate) struct Tokens {
    texts: Vec<Vec<u8>>,
    ids: BTreeMap<Vec<u8>, u32>,
    merges: Vec<(Vec<u8>, u8)>,
}

impl Tokens {
    /// Makes the vocabulary: control tokens, bytes, then words with everything that they begin with.
    pub(crate) fn new() -> Tokens {
        let mut tokens = Tokens { texts: Vec::new(), ids: BTreeMap::new(), merges: Vec::new() };
        CONTROLS.iter().for_each(|control| tokens.add(control.as_bytes().to_vec()));
        (0..=u8::MAX).for_each(|byte| tokens.add(vec![byte]));
        for word in WORDS.split_whitespace() {
            // A word in the middle of another must not be one: only those that begin a piece are merged.
            for word in [format!(" {word}"), word.to_owned()] {
                for end in 2..=word.len() {
                    let (prefix, last) = (word.as_bytes()[..end - 1].to_vec(), word.as_bytes()[end - 1]);
                    if !tokens.ids.contains_key(&word.as_bytes()[..end]) {
                        tokens.merges.push((prefix, last));
                        tokens.add(word.as_bytes()[..end].to_vec());
                    }
                }
            }
        }
        tokens
    }

    fn add(&mut self, text: Vec<u8>) {
        self.ids.insert(text.clone(), self.texts.len() as u32);
        self.texts.push(text);
    }

    /// Text to tokens. `parse` makes control tokens of their texts.
    pub(crate) fn encode(&self, text: &str, parse: bool, cut: Cut) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let control = CONTROLS.iter().position(|control| parse && rest.starts_with(control));
            if let Some(id) = control {
                tokens.push(id as u32);
                rest = &rest[CONTROLS[id].len()..];
                continue;
            }
            let piece = &rest[..piece_length(rest)];
            self.encode_piece(piece.as_bytes(), cut, &mut tokens);
            rest = &rest[piece.len()..];
        }
        tokens
    }

    fn encode_piece(&self, mut piece: &[u8], cut: Cut, tokens: &mut Vec<u32>) {
        while !piece.is_empty() {
            let longest = match cut {
                Cut::Own => piece.len(),
                Cut::Foreign => piece.len().min(3),
            };
            let known = (1..=longest).rev().find_map(|end| Some((end, *self.ids.get(&piece[..end])?)));
            let (end, id) = known.unwrap_or((1, 0));
            tokens.push(id);
            piece = &piece[end..];
        }
    }

    /// Tokens to text, control tokens written out.
    pub(crate) fn decode(&self, tokens: &[u32]) -> String {
        let bytes = tokens.iter().filter_map(|id| self.texts.get(*id as usize)).flatten().copied().collect::<Vec<u8>>();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The same as a Hugging Face `tokenizer.json`: byte-level BPE.
    pub(crate) fn to_json(&self) -> Value {
        let written = |bytes: &[u8]| bytes.iter().map(|byte| printable(*byte)).collect::<String>();
        let vocabulary = self.texts.iter().enumerate().skip(CONTROLS.len());
        let vocabulary: BTreeMap<String, usize> = vocabulary.map(|(id, text)| (written(text), id)).collect();
        let merges: Vec<Value> =
            self.merges.iter().map(|(prefix, last)| json!([written(prefix), written(&[*last])])).collect();
        let added = CONTROLS.iter().enumerate().map(|(id, text)| {
            json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        });
        let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
            "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocabulary, "merges": merges}})
    }
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens::new()
    }
}

/// A word with the space before it, or one character.
fn piece_length(text: &str) -> usize {
    let word = text.strip_prefix(' ').unwrap_or(text);
    let letters = word.find(|c: char| !c.is_alphabetic()).unwrap_or(word.len());
    match letters {
        0 => text.chars().next().map_or(0, char::len_utf8),
        _ => text.len() - word.len() + letters,
    }
}

/// A byte as byte-level vocabularies write it: the printable ones as they are, the others moved up.
fn printable(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let moved = (0..byte).filter(|byte| !is_printable(*byte)).count() as u32;
    char::from_u32(256 + moved).unwrap_or(' ')
}
