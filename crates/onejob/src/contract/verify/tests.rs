//! The checks, one by one, against a chat provider in memory that lies as it is told.

use std::sync::Mutex;

use onejob_core::{FailureClass, Usage};
use serde_json::json;

use super::super::Breach;
use super::super::prompt::tests::{TEMPLATE, tokenizer_json};
use super::super::report::{Check, Verdict};
use super::*;
use crate::config::Config;

/// How a provider lies.
#[derive(Clone, Default)]
struct Lies {
    /// What it answers to a case, instead of what the mode makes an honest one answer.
    output: Option<Value>,
    /// The same in one mode only.
    in_mode: Option<(OutputMode, Value)>,
    drops_system: bool,
    /// Characters of a message that it keeps; the end is dropped.
    keeps: Option<usize>,
    keeps_but_counts_all: bool,
    adds_tokens: u64,
    adds_when_no_system: u64,
    times: Option<f64>,
    no_usage: bool,
    no_model: bool,
    models: Vec<&'static str>,
    cut_off: bool,
    silent: bool,
    status: Option<(FailureClass, u16)>,
    refuses_over: Option<usize>,
    no_endpoint: bool,
    /// It goes away once so many calls were made.
    endpoint_away: Option<u32>,
}

struct Fake {
    lies: Lies,
    tokenizer: crate::contract::Tokenizer,
    template: crate::contract::ChatTemplate,
    calls: Mutex<u32>,
}

impl Fake {
    fn new(lies: Lies) -> Fake {
        Fake {
            lies,
            tokenizer: crate::contract::Tokenizer::from_file(tokenizer_json().as_bytes()).unwrap(),
            template: crate::contract::ChatTemplate::compile(TEMPLATE, Some("<s>"), None).unwrap(),
            calls: Mutex::default(),
        }
    }

    /// What its model makes of a chat: it does as the system prompt says, and knows what it was told.
    fn answer(&self, ask: &Ask, messages: &[Message]) -> Value {
        let lies = &self.lies;
        let user = messages.last().map(|message| message.content.clone()).unwrap_or_default();
        if let Some((_, code)) = user.split_once("The code is ") {
            return Value::from(code.split('.').next().unwrap_or_default());
        }
        if let Some(word) = messages[0].content.split("the word ").nth(1) {
            return Value::from(word.split(' ').next().unwrap_or_default().to_uppercase());
        }
        if ask.chat.as_ref().is_some_and(|chat| chat.schema.is_none()) {
            return Value::from("Paris");
        }
        let mode = ask.chat.as_ref().and_then(|chat| chat.mode);
        if let Some((_, output)) = lies.in_mode.as_ref().filter(|(lying, _)| Some(*lying) == mode) {
            return output.clone();
        }
        lies.output.clone().unwrap_or_else(|| json!("{\"city\": \"Paris\", \"people\": 7}"))
    }

    fn seen(&self, messages: &[Message], call: u32) -> Seen {
        let lies = &self.lies;
        let tokens = self.tokenizer.encode(&self.template.render(messages).unwrap(), crate::contract::Controls::Parsed);
        let mut tokens = tokens.unwrap().len() as u64 + lies.adds_tokens;
        if messages[0].role != "system" {
            tokens += lies.adds_when_no_system;
        }
        tokens = (tokens as f64 * lies.times.unwrap_or(1.0)) as u64;
        let usage = Usage { input_tokens: Some(tokens), output_tokens: Some(3) };
        let model = match &lies.models[..] {
            [] => "m-1",
            models => models[call as usize % models.len()],
        };
        Seen { model: (!lies.no_model).then(|| model.into()), usage: (!lies.no_usage).then_some(usage) }
    }
}

impl Caller for Fake {
    async fn call(&self, ask: Ask) -> Came {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls
        };
        let lies = &self.lies;
        let took = Duration::from_millis(u64::from(call));
        if lies.silent {
            return Came::Silent;
        }
        let broken = |class, status, message: &str, seen, breach| Came::Answered {
            answer: Answer::Broken {
                meaning: Meaning::Failed(class),
                status: Some(status),
                retry_after_ms: None,
                message: message.into(),
                seen,
                breach,
            },
            took,
        };
        if let Some((class, status)) = lies.status {
            return broken(class, status, "as told", Seen::default(), None);
        }
        let mut messages = prompt::messages(ask.chat.as_ref().unwrap(), &ask.input).unwrap();
        let whole = messages.clone();
        if lies.drops_system && messages.len() > 1 {
            messages.remove(0);
        }
        if let Some(keeps) = lies.keeps {
            messages.iter_mut().for_each(|message| message.content = message.content.chars().take(keeps).collect());
        }
        if lies.refuses_over.is_some_and(|most| messages.iter().any(|message| message.content.len() > most)) {
            return broken(FailureClass::Invalid, 400, "too long", Seen::default(), None);
        }
        let seen = self.seen(if lies.keeps_but_counts_all { &whole } else { &messages }, call);
        if lies.cut_off {
            return broken(FailureClass::BrokenContract, 200, "cut off", seen, Some(Breach::CutOff));
        }
        Came::Answered { answer: Answer::Done { output: self.answer(&ask, &messages), seen }, took }
    }

    /// A tokenizer's endpoint of the llama.cpp family.
    async fn beside(&self, _: &Template, sibling: Option<&'static str>, body: Value) -> Result<Value, Trouble> {
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let made = *self.calls.lock().unwrap();
        if self.lies.endpoint_away.is_some_and(|first| made >= first) {
            return Err(Trouble::Away("connection refused".to_owned()));
        }
        match sibling {
            None if self.lies.no_endpoint => Err(Trouble::Wrong("status 404: not found".to_owned())),
            None => {
                let parsed = body["parse_special"] == true;
                let controls =
                    if parsed { crate::contract::Controls::Parsed } else { crate::contract::Controls::AsText };
                Ok(json!({"tokens": self.tokenizer.encode(&text("content"), controls)?}))
            }
            Some("apply-template") => {
                let message = |message: &Value| Message {
                    role: if message["role"] == "system" { "system" } else { "user" },
                    content: message["content"].as_str().unwrap_or_default().to_owned(),
                };
                let messages: Vec<Message> = body["messages"].as_array().unwrap().iter().map(message).collect();
                Ok(json!({"prompt": self.template.render(&messages)?}))
            }
            Some("detokenize") => {
                let tokens: Vec<u32> =
                    body["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
                Ok(json!({"content": self.tokenizer.decode(&tokens)?}))
            }
            Some(other) => Err(Trouble::Wrong(format!("status 404: there is no {other}"))),
        }
    }
}

/// A world of one task at one chat provider.
struct World {
    config: Config,
}

const SCHEMA: &str = r#"{"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}, "people": {"type": "integer"}}}"#;
/// Its markup is text to the tokenizer here.
const FOREIGN_TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message.content + '<end_of_turn>' }}{% endfor %}";
const CASES: &str =
    "[[case]]\nname = \"paris\"\ninput = { text = \"About Paris.\" }\nexpect = [\"output.city == 'Paris'\"]\n";

impl World {
    fn new(provider: &str, task: &str, contract: &str) -> World {
        World::at("openai-chat", provider, task, contract)
    }

    fn at(preset: &str, provider: &str, task: &str, contract: &str) -> World {
        World::of_cases(CASES, preset, provider, task, contract)
    }

    fn of_cases(cases: &str, preset: &str, provider: &str, task: &str, contract: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("schema.json", SCHEMA),
            ("cases.toml", cases),
            ("template.jinja", TEMPLATE),
            ("foreign.jinja", FOREIGN_TEMPLATE),
            ("tokenizer.json", &tokenizer_json()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let text = format!(
            "[providers.a]\npreset = \"{preset}\"\nmodel = \"m-1\"\nbase_url = \"http://x\"\n{provider}\n[tasks.t]\n\
             providers = [\"a\"]\n[tasks.t.output]\nschema = \"schema.json\"\nstrict = true\nrules = [\"output.people is \
             undefined or output.people >= 0\"]\n[tasks.t.contract]\ncases = \"cases.toml\"\nrepeat = 2\nprobe_tokens = \
             2000\n{contract}\n[tasks.t.chat]\n{task}\n"
        );
        let text = if task.contains("user =") { text } else { format!("{text}user = \"{{{{ input.text }}}}\"\n") };
        let config = Config::parse(&text, "onejob.toml", folder.path(), &|_| None);
        World { config: config.unwrap_or_else(|errors| panic!("{errors}")) }
    }

    async fn verify(&self, lies: Lies) -> Report {
        let task = &self.config.tasks["t"];
        let provider = &self.config.providers["a"];
        let subject = Subject { task, contract: task.contract.as_ref().unwrap(), provider };
        verify(subject, &Fake::new(lies), 4, &Tally::default()).await
    }
}

const SYSTEM: &str = "system = \"You answer as JSON.\"";
const LOCAL: &str = "tokenizer = { file = \"tokenizer.json\", chat_template = \"template.jinja\", bos_token = \"<s>\", context_window = 100000 }";

fn closed() -> World {
    World::new("", SYSTEM, "")
}

/// With a tokenizer that is here, and a prompt that lets no text of an input become a control token.
fn open() -> World {
    World::new(LOCAL, &format!("{SYSTEM}\nuser = \"{{{{ input.text | replace('<', '< ') }}}}\""), "")
}

/// The failing rows as `check part: detail`.
fn failures(report: &Report) -> Vec<String> {
    let failing = report.rows.iter().filter(|row| row.failed > 0);
    let said = failing.map(|row| {
        let part = row.part.map_or_else(String::new, |part| format!(", {part}"));
        let mode = row.mode.filter(|mode| *mode != OutputMode::Text).map_or("", OutputMode::as_str);
        format!("{}{part}{mode}: {}", row.check.as_str(), row.detail.as_deref().unwrap_or_default())
    });
    said.collect()
}

/// That exactly one thing fails, and what is said of it.
fn only(report: &Report, begins: &str, holds: &str) {
    let failures = failures(report);
    assert!(
        matches!(&failures[..], [one] if one.starts_with(begins) && one.contains(holds)),
        "expected one failure {begins:?} with {holds:?}, found {failures:#?}"
    );
    assert_eq!(report.verdict(), Verdict::Failed);
}

#[tokio::test]
async fn an_honest_provider_passes_and_every_part_is_tried_or_says_why_not() {
    for (world, tried) in [(closed(), 6), (open(), 0)] {
        let report = world.verify(Lies::default()).await;
        assert_eq!(failures(&report), [""; 0]);
        assert_eq!(report.verdict(), Verdict::Passed);
        assert_eq!(report.model.as_deref(), Some("m-1"));
        assert!(report.rows.iter().all(|row| row.passed > 0 || row.skipped.is_some()), "{:#?}", report.rows);
        assert!(report.rows.iter().filter(|row| row.passed > 0).count() >= tried);
    }
}

#[tokio::test]
async fn outputs_without_the_form_fail_the_structure() {
    for (output, holds) in [
        (json!("{\"city\": \"Paris\", \"mayor\": \"X\"}"), "/mayor"),
        (json!("{\"people\": 7}"), "required"),
        (json!("```json\n{\"city\": \"Paris\"}\n```"), "code fence"),
        (json!("Sure! {\"city\": \"Paris\"}"), "no JSON"),
        (json!("{\"city\": \"Paris<|im_end|>\"}"), "<|im_end|>"),
        (json!("{\"city\": 7}"), "/city"),
    ] {
        let report = closed().verify(Lies { output: Some(output), ..Lies::default() }).await;
        only(&report, "structure: ", holds);
        let row = report.rows.iter().find(|row| row.check == Check::Rules).unwrap();
        assert!(row.skipped.is_some() && row.passed == 0, "rules over nothing: {row:?}");
    }
}

#[tokio::test]
async fn an_output_that_was_cut_off_fails_the_structure_and_not_the_round_trip() {
    let report = closed().verify(Lies { cut_off: true, ..Lies::default() }).await;
    let failures = failures(&report);
    assert!(failures.iter().any(|failure| failure.starts_with("structure: ")), "{failures:?}");
    assert!(!failures.iter().any(|failure| failure.starts_with("round trip")), "{failures:?}");
}

#[tokio::test]
async fn what_the_business_cannot_read_fails_the_rules() {
    let lie = |text: &str| Lies { output: Some(json!(text)), ..Lies::default() };
    only(&closed().verify(lie("{\"city\": \"Paris\", \"people\": -1}")).await, "rules: ", "people");
    only(&closed().verify(lie("{\"city\": \"Lyon\"}")).await, "rules: ", "output.city == 'Paris'");
}

#[tokio::test]
async fn rules_that_are_not_there_do_not_pass() {
    let mut world = World::of_cases(&CASES[..CASES.find("expect").unwrap()], "openai-chat", "", SYSTEM, "");
    let task = std::sync::Arc::get_mut(world.config.tasks.get_mut("t").unwrap()).unwrap();
    task.output.rules.clear();
    let report = world.verify(Lies::default()).await;
    let row = report.rows.iter().find(|row| row.check == Check::Rules).unwrap();
    assert_eq!((row.passed, row.skipped.as_deref()), (0, Some("the task has no rules, and the case expects nothing")));
    assert_eq!(report.verdict(), Verdict::Passed);
}

#[tokio::test]
async fn every_mode_is_tried_and_one_that_the_provider_has_not_is_said() {
    let world = World::new("", SYSTEM, "modes = [\"json_object\", \"json_schema\"]");
    let invented = json!("{\"city\": \"Paris\", \"zip\": 1}");
    let report = world.verify(Lies { in_mode: Some((OutputMode::JsonObject, invented)), ..Lies::default() }).await;
    only(&report, "structurejson_object: ", "/zip");
    let modes: BTreeSet<_> = report.rows.iter().filter_map(|row| row.mode).collect();
    assert_eq!(modes.len(), 3);
    let anthropic = World::at("anthropic-messages", "", SYSTEM, "modes = [\"json_object\"]");
    let report = anthropic.verify(Lies::default()).await;
    assert_eq!(report.verdict(), Verdict::Passed);
    let row = report.rows.iter().find(|row| row.mode == Some(OutputMode::JsonObject)).unwrap();
    assert_eq!(row.skipped.as_deref(), Some("the provider cannot be asked in the mode json_object"));
}

#[tokio::test]
async fn a_provider_that_drops_the_system_prompt_fails_the_canary() {
    let report = closed().verify(Lies { drops_system: true, ..Lies::default() }).await;
    only(&report, "system prompt: ", "not honoured");
    let without = World::new("", "", "").verify(Lies { drops_system: true, ..Lies::default() }).await;
    let row = without.rows.iter().find(|row| row.check == Check::SystemPrompt).unwrap();
    assert_eq!(row.skipped.as_deref(), Some("the task has no system prompt"));
}

#[tokio::test]
async fn silence_fails_the_round_trip_and_a_full_queue_decides_nothing() {
    let silent = closed().verify(Lies { silent: true, ..Lies::default() }).await;
    assert!(failures(&silent).iter().any(|failure| failure.contains("attempt_timeout")));
    assert_eq!(silent.verdict(), Verdict::Failed);
    let busy = Lies { status: Some((FailureClass::Refused, 429)), ..Lies::default() };
    let busy = closed().verify(busy).await;
    assert_eq!((failures(&busy), busy.verdict()), (Vec::new(), Verdict::Undecided));
    assert!(busy.figures.calls <= 4, "{} calls after the first that told nothing", busy.figures.calls);
    let wrong = closed().verify(Lies { status: Some((FailureClass::Invalid, 400)), ..Lies::default() }).await;
    assert!(failures(&wrong).iter().any(|failure| failure == "round trip: invalid 400: as told"), "{wrong:?}");
}

#[tokio::test]
async fn long_prompts_that_are_cut_are_seen_by_their_counts() {
    let cut = Lies { keeps: Some(3000), ..Lies::default() };
    let report = closed().verify(cut.clone()).await;
    let failures = failures(&report);
    assert!(failures.iter().any(|failure| failure.starts_with("renders, grows: ")), "{failures:#?}");
    assert!(failures.iter().any(|failure| failure.starts_with("renders, needle: ")), "{failures:#?}");
    let counted = open().verify(cut).await;
    assert!(self::failures(&counted).iter().any(|failure| failure.starts_with("renders, token count: ")));
}

#[tokio::test]
async fn a_provider_that_reports_nothing_is_tried_by_a_needle() {
    let lies = Lies { keeps: Some(3000), no_usage: true, ..Lies::default() };
    only(&closed().verify(lies).await, "renders, needle: ", "did not arrive");
    let honest = closed().verify(Lies { no_usage: true, no_model: true, ..Lies::default() }).await;
    assert_eq!(honest.verdict(), Verdict::Passed);
    assert_eq!(honest.notes.len(), 2, "{:?}", honest.notes);
    assert!(honest.rows.iter().any(|row| row.part == Some("grows") && row.skipped.is_some()));
}

#[tokio::test]
async fn a_prompt_that_is_counted_whole_and_then_cut_is_seen_by_the_needle() {
    let lies = Lies { keeps: Some(3000), keeps_but_counts_all: true, ..Lies::default() };
    for world in [closed(), open()] {
        only(&world.verify(lies.clone()).await, "renders, needle: ", "did not arrive");
    }
}

#[tokio::test]
async fn a_template_whose_markup_is_text_to_the_tokenizer_is_that_of_another_model() {
    let foreign = LOCAL.replace("template.jinja", "foreign.jinja");
    let report = World::new(&foreign, SYSTEM, "").verify(Lies::default()).await;
    let failures = failures(&report);
    let said = "renders, template: case \"paris\": the chat template writes `<start_of_turn>`";
    assert!(failures.iter().any(|failure| failure.starts_with(said)), "{failures:#?}");
}

#[tokio::test]
async fn a_count_that_is_always_off_by_the_same_little_is_noted() {
    let report = open().verify(Lies { adds_tokens: 1, ..Lies::default() }).await;
    assert_eq!(report.verdict(), Verdict::Passed, "{:?}", failures(&report));
    assert!(report.notes.iter().any(|note| note.contains("every prompt has 1 more token")), "{:?}", report.notes);
    assert!(open().verify(Lies::default()).await.notes.is_empty());
}

#[tokio::test]
async fn a_prompt_that_is_refused_as_too_long_is_an_honest_answer() {
    let report = closed().verify(Lies { refuses_over: Some(3000), ..Lies::default() }).await;
    assert_eq!(report.verdict(), Verdict::Passed, "{:?}", failures(&report));
    assert!(report.notes.iter().any(|note| note.contains("is refused")), "{:?}", report.notes);
}

#[tokio::test]
async fn a_foreign_template_or_tokenizer_shows_in_the_counts() {
    for lies in [Lies { times: Some(1.77), ..Lies::default() }, Lies { times: Some(0.56), ..Lies::default() }] {
        let report = open().verify(lies).await;
        assert!(failures(&report).iter().any(|failure| failure.starts_with("renders, token count: ")), "{report:?}");
    }
    let within = open().verify(Lies { times: Some(1.03), ..Lies::default() }).await;
    assert_eq!(within.verdict(), Verdict::Passed, "{:?}", failures(&within));
}

#[tokio::test]
async fn a_hidden_system_prompt_fails_unless_the_tasks_own_takes_its_place() {
    let always = Lies { adds_tokens: 60, ..Lies::default() };
    only(&closed().verify(always.clone()).await, "renders, hidden prompt: ", "beside the task's own");
    let when_none = Lies { adds_when_no_system: 60, ..Lies::default() };
    let replaced = closed().verify(when_none.clone()).await;
    assert_eq!(replaced.verdict(), Verdict::Passed, "{:?}", failures(&replaced));
    assert!(replaced.notes.iter().any(|note| note.contains("hidden system prompt")));
    only(&World::new("", "", "").verify(when_none).await, "renders, hidden prompt: ", "hidden system prompt");
}

#[tokio::test]
async fn answers_of_several_models_are_a_finding_and_another_name_is_noted() {
    let report = closed().verify(Lies { models: vec!["m-1", "m-2"], ..Lies::default() }).await;
    only(&report, "round trip, one model: ", "\"m-1\", \"m-2\"");
    assert_eq!(report.model, None);
    let other = closed().verify(Lies { models: vec!["other"], ..Lies::default() }).await;
    assert!(other.notes.iter().any(|note| note.contains("calls itself \"other\"")), "{:?}", other.notes);
}

#[tokio::test]
async fn user_text_that_becomes_control_tokens_fails_unless_it_is_filtered() {
    let report = World::new(LOCAL, SYSTEM, "").verify(Lies::default()).await;
    only(&report, "renders, injection: ", "`</s>`");
    assert_eq!(open().verify(Lies::default()).await.verdict(), Verdict::Passed);
}

#[tokio::test]
async fn bos_must_stand_once_and_at_the_beginning() {
    let twice = LOCAL.replace("context_window", "adds_bos = true, context_window");
    let report = World::new(&twice, SYSTEM, "").verify(Lies::default()).await;
    assert!(failures(&report).iter().any(|failure| failure.contains("holds \"<s>\" 2 times")), "{report:?}");
    let at_its_pages = "tokenizer = { endpoint = \"http://x/tokenize\", bos_token = \"<s>\", adds_bos = true }";
    let report = World::new(at_its_pages, SYSTEM, "").verify(Lies::default()).await;
    assert!(failures(&report).iter().any(|failure| failure.contains("holds \"<s>\" 2 times")), "{report:?}");
    let other = LOCAL.replace("\"<s>\"", "\"<bos>\"");
    let report = World::new(&other, SYSTEM, "").verify(Lies::default()).await;
    assert!(failures(&report).iter().any(|failure| failure.contains("no control token \"<bos>\"")), "{report:?}");
}

#[tokio::test]
async fn prompt_and_output_must_fit_the_window() {
    let small = LOCAL.replace("100000", "120");
    let task = format!("{SYSTEM}\nmax_output_tokens = 100");
    let report = World::new(&small, &task, "").verify(Lies::default()).await;
    assert!(failures(&report).iter().any(|failure| failure.starts_with("renders, fits: ")), "{report:?}");
}

#[tokio::test]
async fn a_tokenizer_at_the_provider_is_asked() {
    let endpoint = "tokenizer = { endpoint = \"http://x/tokenize\", bos_token = \"<s>\" }";
    let filtered = format!("{SYSTEM}\nuser = \"{{{{ input.text | replace('<', '< ') }}}}\"");
    let report = World::new(endpoint, &filtered, "").verify(Lies::default()).await;
    assert_eq!(report.verdict(), Verdict::Passed, "{:?}", failures(&report));
    for part in ["template", "injection", "begins once", "comes back", "token count"] {
        let row = report.rows.iter().find(|row| row.part == Some(part)).unwrap();
        assert!(row.passed > 0, "{row:?}");
    }
    let injected = World::new(endpoint, SYSTEM, "").verify(Lies::default()).await;
    only(&injected, "renders, injection: ", "`<|im_");
    let gone = World::new(endpoint, SYSTEM, "").verify(Lies { no_endpoint: true, ..Lies::default() }).await;
    assert!(failures(&gone).iter().any(|failure| failure.contains("status 404")), "{:?}", failures(&gone));
}

#[tokio::test]
async fn a_tokenizer_that_is_away_decides_nothing() {
    let endpoint = "tokenizer = { endpoint = \"http://x/tokenize\", bos_token = \"<s>\" }";
    let filtered = format!("{SYSTEM}\nuser = \"{{{{ input.text | replace('<', '< ') }}}}\"");
    for (calls, part) in [(0, "template"), (1, "token count")] {
        let lies = Lies { endpoint_away: Some(calls), ..Lies::default() };
        let report = World::new(endpoint, &filtered, "").verify(lies).await;
        assert_eq!(report.verdict(), Verdict::Undecided, "{:?}", failures(&report));
        let row = report.rows.iter().find(|row| row.undecided > 0).unwrap();
        assert_eq!(row.part, Some(part), "{row:?}");
        assert!(row.detail.as_ref().unwrap().ends_with("connection refused"), "{row:?}");
    }
}
