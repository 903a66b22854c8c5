//! The provider against servers that misbehave on the wire: raw sockets, one script per test.

mod answers;
mod connections;
mod presets;
mod requests;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onejob_core::{AttemptId, Cause, FailureClass, JobId, Meaning, Phase};
use serde_json::{Value, json};

use super::HttpProvider;
use crate::config::{HttpDefinition, ResponseDefinition, Secret};
use crate::provider::{Answer, CallInput, Progress};
use crate::template::Template;

/// No test waits longer for anything.
const LIMIT: Duration = Duration::from_secs(20);

fn template(value: Value) -> Template {
    Template::compile(&value).unwrap()
}

fn definition(url: &str) -> HttpDefinition {
    HttpDefinition {
        secrets: BTreeMap::from([("api_key".to_owned(), Secret::new("sk-hunter2".to_owned()))]),
        settings: serde_json::Map::new(),
        output_modes: Vec::new(),
        method: "POST".to_owned(),
        url: template(json!(url)),
        headers: vec![("authorization".to_owned(), template(json!("Bearer {{ secret.api_key }}")))],
        body: Some(template(json!({"do": "{{ input }}"}))),
        response: ResponseDefinition { output: Some(template(json!("{{ body.output }}"))), ..Default::default() },
        outcomes: Vec::new(),
        idempotency_header: None,
        connect_timeout: Duration::from_secs(5),
        max_answer_bytes: 4 << 20,
        ca_file: None,
        tokenizer: None,
    }
}

fn open(definition: &HttpDefinition) -> HttpProvider {
    HttpProvider::open("main", 8, definition).unwrap()
}

fn call_with(input: Value) -> CallInput {
    CallInput {
        job: JobId(0x0190_0000_0000_7000_8000_0000_0000_0001),
        owner: "user_1".into(),
        task: "plain".into(),
        attempt: AttemptId(0x0190_0000_0000_7000_8000_0000_0000_0002),
        number: 1,
        input,
        chat: None,
        callback_url: "http://127.0.0.1:4545/v1/callbacks/x".to_owned(),
    }
}

/// Sends one call, to its end.
async fn ask_with(provider: &HttpProvider, input: Value) -> (Answer, Phase) {
    let request = provider.prepare(&call_with(input)).unwrap();
    let progress = Progress::new();
    let answer = tokio::time::timeout(LIMIT, provider.send(request, &progress)).await.unwrap();
    (answer, progress.phase())
}

async fn ask(url: &str) -> (Answer, Phase) {
    ask_with(&open(&definition(url)), json!({"x": 1})).await
}

/// The output of an answer that must be good.
fn output(answer: Answer) -> Value {
    match answer {
        Answer::Done { output, .. } => output,
        other => panic!("no output but {other:?}"),
    }
}

#[derive(PartialEq, Debug)]
struct Broken {
    meaning: Meaning,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
    message: String,
}

fn broken(answer: Answer) -> Broken {
    match answer {
        Answer::Broken { meaning, status, retry_after_ms, message, .. } => {
            Broken { meaning, status, retry_after_ms, message: message.to_string() }
        }
        other => panic!("not broken but {other:?}"),
    }
}

fn failed(class: FailureClass) -> Meaning {
    Meaning::Failed(class)
}

fn unknown(cause: Cause) -> Meaning {
    Meaning::Unknown(cause)
}

/// An HTTP answer with a JSON body.
fn http(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} Whatever\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn good() -> String {
    http(200, "", r#"{"output": {"ok": true}}"#)
}

fn shared<T>(value: T) -> Arc<T> {
    Arc::new(value)
}
