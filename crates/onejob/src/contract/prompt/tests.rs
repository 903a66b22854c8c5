use serde_json::{Map, Value, json};

use super::*;
use crate::config::Config;

/// A template of the ChatML family that begins with a BOS.
pub(crate) const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' -}}
{% endif %}
";

/// A small tokenizer file: a token for each byte, a few merges, four control tokens.
pub(crate) fn tokenizer_json() -> String {
    // How byte-level tokenizers write bytes as characters.
    let printable = |byte: &u32| (33..=126).contains(byte) || (161..=172).contains(byte) || (174..=255).contains(byte);
    let mut vocab = Map::new();
    let mut next = 256;
    for byte in 0..256_u32 {
        let code = if printable(&byte) { byte } else { next };
        next += u32::from(!printable(&byte));
        vocab.insert(char::from_u32(code).unwrap().to_string(), byte.into());
    }
    let merges = [("t", "h"), ("th", "e"), ("a", "n")];
    for (at, (left, right)) in merges.iter().enumerate() {
        vocab.insert(format!("{left}{right}"), (256 + at).into());
    }
    let special = |id: u32, text: &str| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true})
    };
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(300, "<s>"), special(301, "</s>"), special(302, "<|im_start|>"), special(303, "<|im_end|>")],
        "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges.map(|(left, right)| format!("{left} {right}"))},
    })
    .to_string()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_file(tokenizer_json().as_bytes()).unwrap()
}

fn chat(text: &str) -> Vec<Message> {
    vec![
        Message { role: "system", content: "Be brief.".to_owned() },
        Message { role: "user", content: text.to_owned() },
    ]
}

#[test]
fn a_tokenizer_file_is_read_with_its_control_tokens() {
    let tokenizer = tokenizer();
    let texts: Vec<&str> = tokenizer.specials().iter().map(|special| special.text.as_str()).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!(tokenizer.encode("the", Controls::Parsed), Ok(vec![257]));
    assert_eq!(tokenizer.encode("<s>hi", Controls::Parsed).unwrap(), [300, 104, 105]);
    assert_eq!(tokenizer.encode("<s>", Controls::AsText).unwrap(), [60, 115, 62]);
}

#[test]
fn what_is_encoded_comes_back() {
    let tokenizer = tokenizer();
    for text in ["", "the naïve 🦀 — 中文\n\n\ttabs", "<s><|im_start|>user\nx<|im_end|>\n"] {
        let tokens = tokenizer.encode(text, Controls::Parsed).unwrap();
        assert_eq!(tokenizer.decode(&tokens).as_deref(), Ok(text));
    }
}

#[test]
fn a_file_that_is_no_tokenizer_is_refused_with_a_reason() {
    for bytes in ["", "{}", "[1, 2]", "{\"model\": {\"type\": \"BPE\"}}"] {
        let message = Tokenizer::from_file(bytes.as_bytes()).unwrap_err();
        assert!(message.starts_with("is no tokenizer file"), "{message}");
    }
    let message = Tokenizer::from_encoding("o300k").unwrap_err();
    assert!(message.contains("\"o200k_base\"") && message.contains("\"o300k\""), "{message}");
}

#[test]
fn encodings_count_as_the_service_does() {
    let encoding = Tokenizer::from_encoding("cl100k_base").unwrap();
    assert_eq!(encoding.encode("tiktoken is great!", Controls::AsText).unwrap(), [83, 1609, 5963, 374, 2294, 0]);
    assert_eq!(encoding.encode("<|endoftext|>", Controls::Parsed).unwrap(), [100_257]);
    assert!(encoding.encode("<|endoftext|>", Controls::AsText).unwrap().len() > 1);
}

#[test]
fn a_chat_template_renders_as_the_model_was_taught() {
    let template = ChatTemplate::compile(TEMPLATE, Some("<s>"), None).unwrap();
    assert_eq!(
        template.render(&chat("Hi\n")).unwrap(),
        "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi\n<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn templates_may_use_what_python_has() {
    let rendered = |text: &str| ChatTemplate::compile(text, Some("<s>"), Some("</s>")).unwrap().render(&chat(" Hi "));
    for (text, expected) in [
        ("{{ messages[1]['content'].strip().upper() }}", "HI"),
        ("{{ messages[0].content.split(' ')[0].startswith('B') }}", "True"),
        ("{% for k, v in messages[0].items() %}{{ k }},{% endfor %}", "role,content,"),
        ("{{ {'a': [1, true], 'b': none} | tojson }}", r#"{"a": [1, true], "b": null}"#),
        ("{{ bos_token ~ eos_token }}", "<s></s>"),
        ("{%- macro hi(x) -%}<{{ x }}>{%- endmacro -%}{{ hi('a') }}", "<a>"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}", "user"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{{ messages[1:] | length }}", "1"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{{ tools is not defined }}", "True"),
    ] {
        assert_eq!(rendered(text).as_deref(), Ok(expected), "{text}");
    }
    let today = rendered("{{ strftime_now('%d %b %Y') }}").unwrap();
    assert!(today.len() == 11 && today.ends_with(char::is_numeric), "{today}");
}

#[test]
fn a_template_that_refuses_a_chat_says_why() {
    let text = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}x";
    let template = ChatTemplate::compile(text, None, None).unwrap();
    let refused = template.render(&chat("Hi")).unwrap_err();
    assert!(refused.contains("System role not supported"), "{refused}");
    assert!(ChatTemplate::compile("{% if %}", None, None).unwrap_err().starts_with("is no chat template: "));
}

/// A provider with this tokenizer, in a folder with the files above.
pub(crate) fn provider_with(tokenizer: &str) -> std::sync::Arc<crate::config::ProviderConfig> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer_json()).unwrap();
    std::fs::write(folder.path().join("template.jinja"), TEMPLATE).unwrap();
    let text = format!(
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"http://x\"\ntokenizer = {tokenizer}\n"
    );
    let config = Config::parse(&text, "onejob.toml", folder.path(), &|_| None).unwrap();
    config.providers["a"].clone()
}

#[test]
fn a_chat_is_counted_by_template_and_tokenizer() {
    let counted = |tokenizer: &str| {
        let provider = provider_with(tokenizer);
        count(provider.http().unwrap().tokenizer.as_ref().unwrap(), &chat("Hi")).unwrap()
    };
    // Without a template only what the messages say: 9 bytes and 2.
    assert_eq!(counted("{ file = \"tokenizer.json\" }"), Some(11));
    let whole =
        counted("{ file = \"tokenizer.json\", chat_template = \"template.jinja\", bos_token = \"<s>\" }").unwrap();
    assert!(whole > 11 + 6, "{whole}");
    assert_eq!(counted("{ endpoint = \"http://x/tokenize\" }"), None);
    let added =
        "{ file = \"tokenizer.json\", chat_template = \"template.jinja\", bos_token = \"<s>\", adds_bos = true }";
    assert_eq!(counted(added), Some(whole + 1));
}

#[test]
fn messages_are_the_tasks_own_templates() {
    let text = "[providers.a]\nkind = \"simulated\"\n[tasks.t]\nproviders = [\"a\"]\n[tasks.t.chat]\nsystem = \"S {{ input.n }}\"\nuser = \"{{ input.text }}\"\n";
    let config = Config::from_text(text).unwrap();
    let chat = config.tasks["t"].chat.clone().unwrap();
    let all = messages(&chat, &json!({"n": 7, "text": "T"})).unwrap();
    let expected = [("system", "S 7"), ("user", "T")];
    assert_eq!(all.iter().map(|m| (m.role, m.content.as_str())).collect::<Vec<_>>(), expected);
    assert!(messages(&chat, &json!({"n": 7})).unwrap_err().contains("chat.user"));
    assert!(messages(&chat, &Value::Null).unwrap_err().contains("chat.system"));
}
