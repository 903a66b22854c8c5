//! The shipped definitions, loaded as a configuration loads them, against answers in the shape that
//! the services document.

use super::server::Server;
use super::*;
use crate::config::{Chat, Config, OutputMode};
use crate::contract::Breach;
use crate::provider::{Prepared, Provider};

/// A provider made from a preset, as a configuration file would.
fn provider(preset: &str, server: &Server, more: &str) -> Provider {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "sk-hunter2\n").unwrap();
    let path = folder.path().join("onejob.toml");
    let base = format!("http://127.0.0.1:{}/base", server.port);
    let text = format!(
        "[providers.main]\npreset = \"{preset}\"\nmodel = \"m-1\"\nbase_url = \"{base}\"\napi_key = {{ file = \"key\" }}\n{more}\n"
    );
    std::fs::write(&path, text).unwrap();
    Provider::open(&Config::load(&path).unwrap().providers["main"]).unwrap()
}

fn chat(system: Option<&str>, temperature: Option<f64>, max_output_tokens: Option<u64>) -> CallInput {
    let mut call = call_with(json!({"text": "T"}));
    call.chat = Some(Arc::new(Chat {
        system: system.map(|text| template(json!(text))),
        user: template(json!("Summarize: {{ input.text }}")),
        temperature,
        max_output_tokens,
        mode: None,
        schema: None,
    }));
    call
}

/// What a preset sends for a chat of a task with an output schema, in a mode of the call's or of its own.
async fn form(preset: &str, member: &str, more: &str, mode: Option<OutputMode>) -> Value {
    let server = Server::answering(http(200, "", "{}")).await;
    let mut call = chat(None, None, None);
    let plain = call.chat.take().unwrap();
    let schema = Some(("summary".into(), Arc::new(json!({"type": "object"}))));
    call.chat = Some(Arc::new(Chat { mode, schema, ..(*plain).clone() }));
    send(&provider(preset, &server, more), &call).await;
    let request = server.log.requests().remove(0).replace('\r', "");
    let body: Value = serde_json::from_str(body(&request)).unwrap();
    body[member].clone()
}

#[tokio::test]
async fn openai_chat_asks_for_the_form_of_its_output_in_the_mode_that_is_meant() {
    let form = |more, mode| form("openai-chat", "response_format", more, mode);
    let schema = json!({"type": "json_schema", "json_schema": {"name": "summary", "schema": {"type": "object"}, "strict": false}});
    assert_eq!(form("", None).await, Value::Null);
    assert_eq!(form("output_mode = \"json_object\"", None).await, json!({"type": "json_object"}));
    assert_eq!(form("output_mode = \"json_schema\"", None).await, schema);
    assert_eq!(form("", Some(OutputMode::JsonSchema)).await, schema);
    assert_eq!(form("output_mode = \"json_schema\"", Some(OutputMode::Text)).await, Value::Null);
    let strict = form("strict_schema = true", Some(OutputMode::JsonSchema)).await;
    assert_eq!(strict["json_schema"]["strict"], true);
}

#[tokio::test]
async fn anthropic_messages_sends_the_schema_in_the_mode_that_is_meant() {
    let form = |more, mode| form("anthropic-messages", "output_config", more, mode);
    let schema = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
    assert_eq!(form("", None).await, Value::Null);
    assert_eq!(form("output_mode = \"json_schema\"", None).await, schema);
    assert_eq!(form("", Some(OutputMode::JsonSchema)).await, schema);
}

#[tokio::test]
async fn an_answer_that_was_cut_off_still_says_what_it_cost() {
    let answer = json!({"model": "m", "choices": [{"finish_reason": "length", "message": {"content": "{"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    let Answer::Broken { breach, seen, .. } = read("openai-chat", answer).await else { panic!("not broken") };
    assert_eq!(breach, Some(Breach::CutOff));
    assert_eq!((seen.model.as_deref(), seen.usage.unwrap().input_tokens), (Some("m"), Some(7)));
}

async fn send(provider: &Provider, call: &CallInput) -> Answer {
    let prepared = provider.prepare(call).unwrap();
    assert!(matches!(prepared, Prepared::Http(_)));
    tokio::time::timeout(LIMIT, provider.send(prepared, &Progress::new())).await.unwrap()
}

/// The requests that a preset makes of a full and of a bare chat.
async fn requests(preset: &str, more: &str) -> (String, String) {
    let server = Server::answering(http(200, "", "{}")).await;
    let provider = provider(preset, &server, more);
    send(&provider, &chat(Some("Be brief."), Some(0.0), Some(800))).await;
    send(&provider, &chat(None, None, None)).await;
    let mut requests = server.log.requests().into_iter().map(|text| text.replace('\r', ""));
    (requests.next().unwrap(), requests.next().unwrap())
}

fn body(request: &str) -> &str {
    request.split_once("\n\n").unwrap().1
}

/// What a preset makes of a 2xx answer.
async fn read(preset: &str, answer: Value) -> Answer {
    let server = Server::answering(http(200, "", &answer.to_string())).await;
    send(&provider(preset, &server, ""), &chat(None, None, None)).await
}

async fn meaning(preset: &str, answer: Value) -> (Meaning, String) {
    let broken = broken(read(preset, answer).await);
    (broken.meaning, broken.message)
}

#[tokio::test]
async fn openai_chat_asks_as_the_service_documents() {
    let (full, bare) = requests("openai-chat", "response_format = { type = \"json_object\" }").await;
    assert!(full.starts_with("POST /base/chat/completions HTTP/1.1\n"));
    assert!(full.contains("\nauthorization: Bearer sk-hunter2\n"));
    assert_eq!(
        body(&full),
        r#"{"model":"m-1","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Summarize: T"}],"temperature":0.0,"max_completion_tokens":800,"response_format":{"type":"json_object"}}"#
    );
    assert_eq!(
        body(&bare),
        r#"{"model":"m-1","messages":[{"role":"user","content":"Summarize: T"}],"response_format":{"type":"json_object"}}"#
    );
    let (older, _) = requests("openai-chat", "max_tokens_field = \"max_tokens\"").await;
    assert!(body(&older).ends_with(r#""temperature":0.0,"max_tokens":800}"#), "{older}");
}

fn completion(message: Value, finish_reason: &str) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m-1-2026-01-01",
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 31, "completion_tokens": 7, "total_tokens": 38}})
}

#[tokio::test]
async fn openai_chat_is_read_as_the_service_documents() {
    let message = json!({"role": "assistant", "content": "{\"a\": 1}", "refusal": null, "annotations": []});
    let Answer::Done { output, seen } = read("openai-chat", completion(message, "stop")).await else {
        panic!("no answer")
    };
    assert_eq!((output, seen.model.as_deref()), (json!("{\"a\": 1}"), Some("m-1-2026-01-01")));
    assert_eq!(seen.usage, Some(onejob_core::Usage { input_tokens: Some(31), output_tokens: Some(7) }));
}

#[tokio::test]
async fn openai_chat_knows_its_bad_answers() {
    let broken_contract = failed(FailureClass::BrokenContract);
    let failed_there = failed(FailureClass::FailedThere);
    let text = |text: &str| json!({"role": "assistant", "content": text});
    let refusal = json!({"role": "assistant", "content": null, "refusal": "I cannot"});
    let silent = json!({"role": "assistant", "content": null});
    assert_eq!(meaning("openai-chat", completion(text("half"), "length")).await.0, broken_contract);
    assert_eq!(meaning("openai-chat", completion(refusal, "stop")).await, (failed_there, "I cannot".to_owned()));
    assert_eq!(meaning("openai-chat", completion(text(""), "content_filter")).await.0, failed_there);
    assert_eq!(meaning("openai-chat", completion(silent, "stop")).await.0, broken_contract);
    assert_eq!(meaning("openai-chat", json!({"choices": []})).await.0, broken_contract);
    let upstream = json!({"error": {"message": "upstream down", "code": 502}});
    assert_eq!(meaning("openai-chat", upstream).await, (failed_there, "upstream down".to_owned()));
    assert_eq!(meaning("openai-chat", json!({"error": "plain"})).await, (failed_there, "plain".to_owned()));
}

#[tokio::test]
async fn anthropic_messages_asks_as_the_service_documents() {
    let (full, bare) = requests("anthropic-messages", "").await;
    assert!(full.starts_with("POST /base/v1/messages HTTP/1.1\n"));
    assert!(full.contains("\nx-api-key: sk-hunter2\n") && full.contains("\nanthropic-version: 2023-06-01\n"));
    assert_eq!(
        body(&full),
        r#"{"model":"m-1","max_tokens":800,"system":"Be brief.","messages":[{"role":"user","content":"Summarize: T"}],"temperature":0.0}"#
    );
    assert_eq!(
        body(&bare),
        r#"{"model":"m-1","max_tokens":4096,"messages":[{"role":"user","content":"Summarize: T"}]}"#
    );
}

fn message(content: Value, stop_reason: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1-2026", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 20, "cache_creation_input_tokens": null, "cache_read_input_tokens": 11, "output_tokens": 7}})
}

#[tokio::test]
async fn anthropic_messages_is_read_as_the_service_documents() {
    let blocks = json!([{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "{\"a\""}, {"type": "text", "text": ": 1}"}]);
    let Answer::Done { output, seen } = read("anthropic-messages", message(blocks, "end_turn")).await else {
        panic!("no answer")
    };
    assert_eq!((output, seen.model.as_deref()), (json!("{\"a\": 1}"), Some("m-1-2026")));
    assert_eq!(seen.usage, Some(onejob_core::Usage { input_tokens: Some(31), output_tokens: Some(7) }));
}

#[tokio::test]
async fn anthropic_messages_knows_its_bad_answers() {
    let broken_contract = failed(FailureClass::BrokenContract);
    let failed_there = failed(FailureClass::FailedThere);
    let text = json!([{"type": "text", "text": "half"}]);
    for reason in ["max_tokens", "model_context_window_exceeded"] {
        assert_eq!(meaning("anthropic-messages", message(text.clone(), reason)).await.0, broken_contract);
    }
    assert_eq!(meaning("anthropic-messages", message(json!([]), "refusal")).await.0, failed_there);
    assert_eq!(meaning("anthropic-messages", message(json!([]), "end_turn")).await.0, broken_contract);
    assert_eq!(meaning("anthropic-messages", json!({})).await.0, broken_contract);
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert_eq!(meaning("anthropic-messages", overloaded).await, (failed_there, "Overloaded".to_owned()));
}
