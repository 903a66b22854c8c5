//! What it costs to hold an answer against its task's contract, next to reading it as JSON at all.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contract::{OutputContract, Schema};
use crate::json::{self, Duplicates};
use crate::template::Rule;

/// Sizes of outputs, in bytes.
const SIZES: [usize; 2] = [1_000, 100_000];

/// How long each is repeated.
const TIME: Duration = Duration::from_millis(300);

/// One size.
pub(super) struct Checked {
    pub(super) bytes: usize,
    /// Median of one whole check of an answer that comes as text, in microseconds.
    pub(super) check_us: f64,
    /// Median of reading the same text as JSON, in microseconds.
    pub(super) parse_us: f64,
}

/// Measures every size.
pub(super) fn measure() -> Result<Vec<Checked>, String> {
    let schema = json!({"type": "object", "required": ["bullets"], "properties": {
        "bullets": {"type": "array", "items": {"type": "string", "maxLength": 200}}, "title": {"type": "string"}}});
    let rule = "output.bullets | length >= input.least";
    let contract = OutputContract {
        schema: Some(Schema::compile(&schema)?),
        strict: true,
        rules: vec![(rule.to_owned(), Rule::compile(rule).map_err(|error| error.message)?)],
        allow_control_tokens: false,
    };
    SIZES.iter().map(|bytes| of(&contract, *bytes)).collect()
}

fn of(contract: &OutputContract, bytes: usize) -> Result<Checked, String> {
    let bullet = "The meeting moved to <Tuesday>, and [the room] with it; everybody else stays where they are.";
    let bullets = vec![bullet; (bytes / (bullet.len() + 3)).max(1)];
    let text = json!({"title": "A note", "bullets": bullets}).to_string();
    let (input, output) = (json!({"least": 1}), Value::from(text.as_str()));
    let check_us = median(|| contract.accept(&input, output.clone()).map(drop).map_err(|error| error.message))?;
    let read = || json::parse(text.as_bytes(), Duplicates::LastStands, json::MAX_DEPTH);
    let parse_us = median(|| read().map(|value| drop(black_box(value))).map_err(|error| error.message))?;
    Ok(Checked { bytes: text.len(), check_us, parse_us })
}

fn median(mut work: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let (end, mut took) = (Instant::now() + TIME, Vec::new());
    while took.is_empty() || Instant::now() < end {
        let began = Instant::now();
        work()?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took[took.len() / 2].as_secs_f64() * 1e6)
}
