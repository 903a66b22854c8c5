use std::time::Duration;

use onejob_core::{Effects, Line, Override};
use serde_json::json;

use super::super::*;
use super::{FULL, Folder, SECRET};
use crate::template::Scope;
use std::path::Path;

fn http<'a>(config: &'a Config, name: &str) -> &'a HttpDefinition {
    match &config.providers[name].kind {
        ProviderKind::Http(definition) => definition,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn the_whole_example_of_the_design_loads() {
    let folder = Folder::new();
    let config = folder.parse(FULL).unwrap_or_else(|errors| panic!("{errors}"));
    let task = &config.tasks["summarize"];
    assert_eq!(task.providers, [Text::from("main"), Text::from("backup")]);
    assert_eq!(task.effects, Effects::Racing);
    assert_eq!((task.tries, task.max_attempts), (2, 4));
    assert_eq!(task.linger, Duration::from_secs(600));
    assert_eq!(task.on_unknown, OnUnknown::AbandonAfter(Duration::from_secs(900)));
    assert_eq!(task.hedge_after, Some(Duration::from_secs(10)));
    assert!(task.input_schema.is_some() && task.output.schema.is_some() && task.output.strict);
    let chat = task.chat.as_ref().unwrap();
    assert_eq!((chat.temperature, chat.max_output_tokens), (Some(0.0), Some(800)));
    assert_eq!(config.server.store, StoreLocation::Sqlite(folder.path().join("onejob.db")));
    assert_eq!(config.providers["poster"].concurrency, 8);
}

#[test]
fn a_request_keeps_the_types_and_the_order_of_its_body() {
    let folder = Folder::new();
    let config = folder.parse(FULL).unwrap();
    let poster = http(&config, "poster");
    assert_eq!(poster.method, "POST");
    assert_eq!(poster.headers[0].0, "authorization");
    let scope = Scope::new()
        .with("input", json!({"text": "a", "size": 3}))
        .with("attempt", json!({"id": "att_1"}))
        .with("callback_url", json!("http://here"));
    let body = poster.body.as_ref().unwrap().render(&scope).unwrap().unwrap();
    assert_eq!(body.to_string(), r#"{"text":"a","size":3,"reference":"att_1","notify":"http://here"}"#);
}

#[test]
fn numbers_and_lists_of_a_body_stay_what_they_are() {
    let text = r#"
[providers.a]
kind = "http"
[providers.a.request]
url = "http://127.0.0.1:1/"
body = { i = -7, hex = 0xff, f = 1.50, b = true, l = [1, "x", { y = 2 }], big = 9_223_372_036_854_775_807 }
"#;
    let config = Config::from_text(text).unwrap();
    let body = http(&config, "a").body.as_ref().unwrap().render(&Scope::new()).unwrap().unwrap();
    assert_eq!(
        body,
        json!({"i": -7, "hex": 255, "f": 1.5, "b": true, "l": [1, "x", {"y": 2}], "big": 9_223_372_036_854_775_807_i64})
    );
}

#[test]
fn statuses_move_to_the_lines_that_the_file_names() {
    let folder = Folder::new();
    let config = folder.parse(FULL).unwrap();
    let poster = http(&config, "poster");
    assert!(poster.outcomes.contains(&Override { status: 503, line: Line::Refused }));
    assert!(poster.outcomes.contains(&Override { status: 409, line: Line::Invalid }));
    assert!(poster.outcomes.contains(&Override { status: 500, line: Line::FailedThere }));
    assert!(poster.outcomes.contains(&Override { status: 404, line: Line::Unknown }));
    assert_eq!(poster.idempotency_header.as_deref(), Some("idempotency-key"));
}

#[test]
fn secrets_are_read_and_never_shown() {
    let folder = Folder::new();
    let config = folder.parse(FULL).unwrap();
    for name in ["main", "backup", "poster"] {
        assert_eq!(http(&config, name).secrets["api_key"].reveal(), SECRET, "{name}");
    }
    assert!(!format!("{config:?}").contains(SECRET));
}

#[test]
fn an_empty_file_is_a_server_at_its_defaults() {
    let config = Config::from_text("").unwrap();
    let server = &config.server;
    assert_eq!(server.listen.to_string(), defaults::LISTEN);
    assert_eq!(server.store, StoreLocation::Sqlite("onejob.db".into()));
    assert_eq!(server.public_url, "http://127.0.0.1:4545");
    assert!(config.providers.is_empty() && config.tasks.is_empty() && config.remarks.is_empty());
}

#[test]
fn a_task_that_says_little_has_the_documented_defaults() {
    let config = Config::from_text("[providers.a]\nkind = \"simulated\"\n[tasks.t]\nproviders = [\"a\"]\n").unwrap();
    let task = &config.tasks["t"];
    assert_eq!(task.effects, Effects::Exclusive);
    assert_eq!(task.attempt_timeout, Duration::from_secs(30));
    assert_eq!(task.linger, Duration::from_secs(600));
    assert_eq!((task.tries, task.max_attempts), (2, 4));
    assert_eq!(task.backoff, Duration::from_millis(500));
    assert_eq!(task.on_unknown, OnUnknown::Hold);
    assert_eq!(config.providers["a"].concurrency, 64);
}

#[test]
fn the_public_url_follows_the_address_unless_it_is_given() {
    let config = Config::from_text("[server]\nlisten = \"[::1]:8080\"\nstore = \"memory:\"\n").unwrap();
    assert_eq!(config.server.public_url, "http://[::1]:8080");
    assert_eq!(config.server.store, StoreLocation::Memory);
    let config = Config::from_text("[server]\npublic_url = \"https://jobs.example.com/one/\"\n").unwrap();
    assert_eq!(config.server.public_url, "https://jobs.example.com/one");
}

#[test]
fn what_the_file_says_is_laid_over_the_preset() {
    let text = r#"
[providers.local]
preset = "openai-chat"
model = "llama"
base_url = "http://127.0.0.1:8000/v1/"
response_format = { type = "json_object" }
[providers.local.request.headers]
x-team = "green"
[providers.local.request.body]
seed = 7
temperature = 1
[providers.local.response]
output = "{{ body.text }}"
"#;
    let config = Config::from_text(text).unwrap_or_else(|errors| panic!("{errors}"));
    let local = http(&config, "local");
    assert_eq!(local.settings["base_url"], "http://127.0.0.1:8000/v1");
    assert_eq!(local.settings["max_tokens_field"], "max_completion_tokens");
    let names: Vec<&str> = local.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["authorization", "x-team"]);
    let scope = Scope::new().with("provider", serde_json::Value::Object(local.settings.clone()));
    let scope = scope.with("chat", json!({"user": "hello"})).with("body", json!({"text": "hi"}));
    assert_eq!(local.url.render(&scope).unwrap().unwrap(), "http://127.0.0.1:8000/v1/chat/completions");
    let body = local.body.as_ref().unwrap().render(&scope).unwrap().unwrap();
    assert_eq!(
        body,
        json!({"model": "llama", "messages": [{"role": "user", "content": "hello"}], "temperature": 1, "seed": 7,
            "response_format": {"type": "json_object"}})
    );
    assert_eq!(local.response.output.as_ref().unwrap().render(&scope).unwrap().unwrap(), "hi");
}

#[test]
fn every_preset_loads_with_what_it_demands() {
    for (name, _) in super::super::preset::PRESETS {
        let text =
            format!("[providers.p]\npreset = \"{name}\"\nmodel = \"m\"\napi_key = {{ env = \"OPENAI_API_KEY\" }}\n");
        let config = Folder::new().parse(&text).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(config.providers["p"].reads_chat(), "{name}");
    }
}

#[test]
fn what_is_not_supported_yet_is_said_with_its_line() {
    let config = Folder::new().parse(FULL).unwrap();
    let remarks = config.remarks.iter().map(|r| format!("{}: {}: {:?}: {}", r.line, r.key, r.kind, r.message));
    insta::assert_snapshot!(remarks.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_late_answer_ends_the_unknown_only_where_one_can_come() {
    let ends = |provider: &str, linger: &str| {
        let text = format!("[providers.a]\n{provider}\n[tasks.t]\nproviders = [\"a\"]\nlinger = \"{linger}\"\n");
        let config = Config::from_text(&text).unwrap_or_else(|errors| panic!("{errors}"));
        let mut remarks = config.remarks.into_iter();
        remarks.find(|remark| remark.kind == RemarkKind::UnknownEndsBy).unwrap().message
    };
    let by_answer = "an unknown attempt ends by a late answer within 5s, or an operator's word";
    let by_word = "an unknown attempt ends by an operator's word";
    assert_eq!(ends("kind = \"simulated\"", "5s"), by_answer);
    assert_eq!(ends("kind = \"simulated\"", "0s"), by_word);
    assert_eq!(ends("kind = \"worker\"", "5s"), by_word);
    let http = "kind = \"http\"\nrequest = { url = \"http://x/\" }";
    assert_eq!(ends(http, "5s"), by_answer);
    assert_eq!(ends(&format!("{http}\nresponse = {{ handle = \"{{{{ body.id }}}}\" }}"), "5s"), by_word);
}

#[test]
fn a_chat_block_that_nobody_sends_is_remarked() {
    let text = "[providers.a]\nkind = \"simulated\"\n[tasks.t]\nproviders = [\"a\"]\nchat = { user = \"x\" }\n";
    let config = Config::from_text(text).unwrap();
    let remark = config.remarks.iter().find(|remark| remark.kind == RemarkKind::NoEffect).unwrap();
    assert_eq!((remark.key.as_str(), remark.line), ("tasks.t.chat", 5));
}

#[test]
fn a_file_that_is_not_there_is_an_error_with_its_name() {
    let errors = Config::load(Path::new("no/such/onejob.toml")).unwrap_err();
    assert_eq!(errors.to_string(), "no/such/onejob.toml: cannot read it: no such file");
}

#[test]
fn paths_are_relative_to_the_file() {
    let folder = Folder::new();
    folder.write("onejob.toml", "[server]\nstore = \"sqlite:data/jobs.db\"\n");
    let config = Config::load(&folder.path().join("onejob.toml")).unwrap();
    assert_eq!(config.server.store, StoreLocation::Sqlite(folder.path().join("data/jobs.db")));
}

#[test]
fn durations_are_whole_numbers_with_units_largest_first() {
    let milliseconds = |text| parse_duration(text).map(|duration| duration.as_millis());
    for (text, expected) in [
        ("0s", 0),
        ("500ms", 500),
        ("30s", 30_000),
        ("10m", 600_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1d1h1m1s1ms", 90_061_001),
    ] {
        assert_eq!(milliseconds(text), Ok(expected), "{text}");
        assert_eq!(parse_duration(&duration_text(parse_duration(text).unwrap())), parse_duration(text));
    }
    for text in
        ["", "s", "10", "-5s", "1.5s", " 1s", "1 s", "1s ", "30s10m", "1s1s", "1w", "1S", "5seconds", "1h30", "９s"]
            .into_iter()
            .chain(["99999999999999999999s", "99999999999999999d"])
    {
        let message = parse_duration(text).expect_err(text);
        assert!(message.contains("\"30s\"") && message.contains(&format!("{text:?}")), "{message}");
    }
}
