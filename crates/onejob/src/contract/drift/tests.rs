use onejob_core::{AttemptId, CertificateId, JobId, Usage};
use serde_json::json;

use super::super::prompt::tests::{TEMPLATE, tokenizer_json};
use super::*;
use crate::config::Config;

/// A configuration with one chat task at one provider, whose tokenizer is here or not.
fn config(tokenizer: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer_json()).unwrap();
    std::fs::write(folder.path().join("template.jinja"), TEMPLATE).unwrap();
    let text = format!(
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"http://x\"\n{tokenizer}\n[tasks.t]\nproviders \
         = [\"a\"]\nchat = {{ system = \"Be brief.\", user = \"{{{{ input.text }}}}\" }}\n"
    );
    Config::parse(&text, "onejob.toml", folder.path(), &|_| None).unwrap()
}

fn certificate(model: Option<&str>, detail: Value) -> Certificate {
    Certificate {
        id: CertificateId(1),
        task: "t".into(),
        provider: "a".into(),
        contract_digest: [0; 32],
        model: model.map(Text::from),
        detail: detail.to_string().into(),
        issued_at: 0,
        valid_until: 1,
        suspended: None,
    }
}

fn call(config: &Config, text: &str) -> CallInput {
    CallInput {
        job: JobId(1),
        owner: "o".into(),
        task: "t".into(),
        attempt: AttemptId(1),
        number: 1,
        input: json!({"text": text}),
        chat: config.tasks["t"].chat.clone(),
        callback_url: String::new(),
    }
}

fn seen(model: Option<&str>, input_tokens: Option<u64>) -> Seen {
    Seen { model: model.map(Text::from), usage: Some(Usage { input_tokens, output_tokens: None }) }
}

fn figures(unit: &str, least: f64, most: f64) -> Value {
    json!({"token_tolerance": 0.1, "figures": {"prompt": {"unit": unit, "least": least, "most": most}}})
}

#[test]
fn another_model_is_drift_and_none_is_not() {
    let config = config("");
    let of = |certified, now| {
        drift(&certificate(certified, json!({})), &config.providers["a"], &call(&config, "x"), &seen(now, None))
    };
    assert_eq!(of(Some("m-1"), Some("m-1")), None);
    assert_eq!(of(Some("m-1"), None), None);
    assert_eq!(of(None, Some("m-1")), None);
    let said = of(Some("m-1"), Some("m-2")).unwrap();
    assert!(said.contains("\"m-2\"") && said.contains("\"m-1\""), "{said}");
}

#[test]
fn counts_of_a_tokenizer_that_is_here_may_be_off_by_the_tolerance() {
    let config =
        config("tokenizer = { file = \"tokenizer.json\", chat_template = \"template.jinja\", bos_token = \"<s>\" }");
    let text = "x".repeat(1000);
    let of = |tokens| {
        let certificate = certificate(None, figures("token", 1.0, 1.0));
        drift(&certificate, &config.providers["a"], &call(&config, &text), &seen(None, Some(tokens)))
    };
    assert_eq!(of(1040), None);
    assert_eq!(of(1130), None);
    assert!(of(1300).unwrap().contains("1300 prompt tokens"));
    assert!(of(500).is_some(), "a prompt that was cut");
}

#[test]
fn without_a_tokenizer_only_what_no_language_explains_is_drift() {
    let config = config("");
    let text = "word ".repeat(2000);
    let of = |text: &str, tokens| {
        let certificate = certificate(None, figures("byte", 0.25, 0.5));
        drift(&certificate, &config.providers["a"], &call(&config, text), &seen(None, Some(tokens)))
    };
    assert_eq!(of(&text, 2500), None);
    assert_eq!(of(&text, 9000), None);
    assert!(of(&text, 512).is_some(), "a prompt of 10 kB that was cut to 512 tokens");
    assert!(of(&text, 20_000).is_some());
    assert_eq!(of("Hi", 40), None, "a short prompt is mostly markup");
}

#[test]
fn what_cannot_be_compared_is_no_drift() {
    let with = config("tokenizer = { file = \"tokenizer.json\" }");
    let without = config("");
    let of = |config: &Config, detail, tokens| {
        drift(&certificate(None, detail), &config.providers["a"], &call(config, "x"), &seen(None, tokens))
    };
    assert_eq!(of(&with, figures("token", 1.0, 1.0), None), None);
    assert_eq!(of(&without, figures("token", 1.0, 1.0), Some(9999)), None);
    assert_eq!(of(&with, json!({}), Some(9999)), None);
}
