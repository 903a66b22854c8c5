//! What a certificate says beside its digests: everything that the proof stands on and what it showed.

use serde_json::{Value, json};

use super::report::Report;
use super::verify::Subject;
use crate::config::hex;

/// The detail of a certificate, a JSON object. `by` says who ran the verification.
pub fn detail(subject: Subject<'_>, report: &Report, by: &str) -> Value {
    let Subject { task, contract, provider } = subject;
    let http = provider.http();
    let chat = task.chat.as_ref().filter(|_| provider.reads_chat());
    let tokenizer = http.and_then(|http| http.tokenizer.as_ref());
    let modes: Vec<&str> = {
        let mut modes: Vec<&str> = report.rows.iter().filter_map(|row| Some(row.mode?.as_str())).collect();
        modes.dedup();
        modes.sort_unstable();
        modes.dedup();
        modes
    };
    json!({
        "task_digest": hex(&task.digest),
        "provider_digest": hex(&provider.digest),
        "endpoint": http.and_then(|http| http.settings.get("base_url")),
        "parameters": {
            "model": http.and_then(|http| http.settings.get("model")),
            "temperature": chat.and_then(|chat| chat.temperature),
            "max_output_tokens": chat.and_then(|chat| chat.max_output_tokens),
        },
        "output_modes": modes,
        "repeat": contract.repeat,
        "cases": contract.cases.len(),
        "token_tolerance": contract.token_tolerance,
        "tokenizer": tokenizer.map_or(json!("opaque"), |tokenizer| tokenizer.digests.clone()),
        "figures": report.figures.to_json(),
        "notes": report.notes,
        "verified_by": by,
        "version": env!("CARGO_PKG_VERSION"),
    })
}
