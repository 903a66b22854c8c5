//! `[tasks.*]`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onejob_core::{Effects, Text};

use super::duration::duration_text;
use super::section::{Item, Section, suggestion};
use super::text::{OVER_INPUT, rule, schema, string_template};
use super::{Chat, OnUnknown, ProviderConfig, RemarkKind, Task, contract, defaults, digest};
use crate::contract::OutputContract;

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// The providers of the file: `None` for one that has errors of its own.
pub(super) type Providers = BTreeMap<Text, Option<Arc<ProviderConfig>>>;

/// Reads one task.
pub(super) fn read(name: &str, item: &Item<'_>, known: &Providers) -> Option<Task> {
    let section = item.section("a table such as { providers = [\"main\"] }")?;
    let chat_block = section.get("chat");
    let providers = section.need("providers", "an array of provider names, such as [\"main\"]");
    let providers = providers.and_then(|item| providers_of(&item, known, chat_block.as_ref()));
    let effects = section.get("effects").map(|item| {
        let effects = item.word(&[("exclusive", Effects::Exclusive), ("racing", Effects::Racing)]);
        effects.unwrap_or(Effects::Exclusive)
    });
    let effects = effects.unwrap_or(Effects::Exclusive);
    let time = |key, low, high, default| section.get(key).and_then(|item| item.duration(low..=high)).unwrap_or(default);
    let attempt_timeout = time("attempt_timeout", MILLISECOND, 30 * DAY, defaults::ATTEMPT_TIMEOUT);
    let linger = time("linger", Duration::ZERO, 30 * DAY, defaults::LINGER);
    let backoff = time("backoff", Duration::ZERO, MINUTE, defaults::BACKOFF);
    let (tries, max_attempts) = tries(&section);
    let hedge_after = section.get("hedge_after").and_then(|item| hedge_after(&item, effects));
    let on_unknown = section.get("on_unknown").and_then(|item| on_unknown(&item)).unwrap_or(OnUnknown::Hold);
    let input_schema = section.get("input_schema").map(|item| schema(&item));
    let input_schema = input_schema.flatten();
    let chat_node = chat_block.as_ref().map(|item| item.node);
    let chat = chat_block.and_then(|item| chat(&item));
    let output = section.get("output").and_then(|item| output(&item)).unwrap_or_default();
    let surroundings = contract::Surroundings {
        input_schema: input_schema.as_ref(),
        has_output_schema: output.schema.is_some(),
        has_chat: chat_node.is_some(),
    };
    let contract = section.get("contract").and_then(|item| contract::read(&item, &surroundings));
    let digest = digest::of_task(chat_node, &output, contract.as_ref());
    let task = Task {
        name: name.into(),
        providers: providers.unwrap_or_default(),
        effects,
        attempt_timeout,
        linger,
        tries,
        max_attempts,
        backoff,
        hedge_after,
        on_unknown,
        input_schema,
        chat: chat.map(|chat| {
            let schema = output.schema.as_ref().map(|schema| (name.into(), Arc::new(schema.document().clone())));
            Arc::new(Chat { schema, ..chat })
        }),
        output,
        contract,
        digest,
    };
    remark_on_unknown(&section, &task, known);
    remark_without_contract(&section, &task);
    section.end(&[]);
    Some(task)
}

fn providers_of(item: &Item<'_>, known: &Providers, chat: Option<&Item<'_>>) -> Option<Vec<Text>> {
    let names = item.strings("main")?;
    if names.is_empty() {
        item.error("expected at least one provider, found an empty array");
    }
    let mut providers: Vec<Text> = Vec::new();
    let mut chat_is_read = false;
    for (name, item) in names {
        if providers.iter().any(|provider| &**provider == name) {
            item.error(format!("the provider {name:?} is named twice"));
        } else if let Some(provider) = known.get(name) {
            let reads_chat = provider.as_ref().is_none_or(|provider| provider.reads_chat());
            chat_is_read |= reads_chat;
            if reads_chat && provider.is_some() && chat.is_none() {
                item.error(format!(
                    "the provider {name:?} sends a chat, and this task has no chat block: add one with `user`"
                ));
            }
        } else {
            let all: Vec<&str> = known.keys().map(|name| &**name).collect();
            let hint = if all.is_empty() { "there are no providers".to_owned() } else { suggestion(name, &all) };
            item.error(format!("there is no provider {name:?}; {hint}"));
        }
        providers.push(name.into());
    }
    if let Some(chat) = chat.filter(|_| !chat_is_read) {
        chat.remark(RemarkKind::NoEffect, "none of the task's providers sends a chat: this block has no effect");
    }
    Some(providers)
}

fn tries(section: &Section<'_>) -> (u32, u32) {
    let count = |key| {
        let item = section.get(key)?;
        let count = item.whole(1..=1_000, "").and_then(|n| u32::try_from(n).ok());
        Some((item, count))
    };
    let (tries, max_attempts) = (count("tries"), count("max_attempts"));
    let value = |given: &Option<(Item<'_>, Option<u32>)>, default| match given {
        Some((_, Some(value))) => *value,
        Some((_, None)) | None => default,
    };
    let (per_provider, per_job) = (value(&tries, defaults::TRIES), value(&max_attempts, defaults::MAX_ATTEMPTS));
    if let Some((item, Some(_))) = &tries
        && per_provider > per_job
    {
        item.error(format!("is {per_provider}, but max_attempts lets a job have {per_job} attempts only"));
    }
    (per_provider, per_job)
}

fn hedge_after(item: &Item<'_>, effects: Effects) -> Option<Duration> {
    let value = item.duration(MILLISECOND..=DAY);
    match effects {
        Effects::Racing => {}
        Effects::Exclusive => item.error(
            "needs effects = \"racing\": it starts a second attempt beside the first, and this task is exclusive",
        ),
    }
    value
}

fn on_unknown(item: &Item<'_>) -> Option<OnUnknown> {
    let expected = "\"hold\" or { abandon_after = \"15m\" }";
    if item.is_string() {
        let word = item.string("hold")?;
        if word != "hold" {
            item.error(format!("expected {expected}, found {word:?}"));
        }
        return Some(OnUnknown::Hold);
    }
    let section = item.section(expected)?;
    let after = section.need("abandon_after", "a duration such as \"15m\"");
    let after = after.and_then(|item| item.duration(MILLISECOND..=365 * DAY));
    section.end(&[]);
    after.map(OnUnknown::AbandonAfter)
}

fn chat(item: &Item<'_>) -> Option<Chat> {
    let section = item.section("a table such as { user = \"Summarize: {{ input.text }}\" }")?;
    let text = |item: &Item<'_>| string_template(item, "Summarize: {{ input.text }}", OVER_INPUT);
    let system = section.get("system").map(|item| text(&item));
    let user = section.need("user", "a template such as \"Summarize: {{ input.text }}\"").and_then(|item| text(&item));
    let temperature = section.get("temperature").and_then(|item| item.number(0.0..=2.0));
    let max_output_tokens =
        section.get("max_output_tokens").and_then(|item| item.whole(1..=1_000_000_000, "of tokens"));
    section.end(&[]);
    Some(Chat { system: system.flatten(), user: user?, temperature, max_output_tokens, mode: None, schema: None })
}

fn output(item: &Item<'_>) -> Option<OutputContract> {
    let section = item.section("a table such as { schema = \"schemas/summary.json\" }")?;
    let named = section.get("schema");
    let compiled = named.as_ref().and_then(schema);
    let strict = section.get("strict").and_then(|item| {
        let strict = item.boolean()?;
        if strict && named.is_none() {
            item.error("needs a schema: it allows no top-level key beyond the schema's");
        }
        Some(strict)
    });
    let rules = section.get("rules").and_then(|item| item.array("rules such as [\"output.bullets | length <= 5\"]"));
    let rules = rules.unwrap_or_default().iter().filter_map(rule).collect();
    let allow_control_tokens = section.get("allow_control_tokens").and_then(|item| item.boolean()).unwrap_or(false);
    section.end(&[]);
    Some(OutputContract { schema: compiled, strict: strict.unwrap_or(false), rules, allow_control_tokens })
}

/// What does nothing in a task that no provider can prove itself for.
fn remark_without_contract(section: &Section<'_>, task: &Task) {
    if section.get("contract").is_some() {
        return;
    }
    if let [first, _, ..] = &*task.providers
        && let Some(item) = section.get("providers")
    {
        let message = format!(
            "failover to another provider needs a certificate, and a task without a contract gets none: without a \
             pinned provider, jobs go to {first:?} only"
        );
        item.remark(RemarkKind::NoEffect, &message);
    }
    if let Some(item) = section.get("hedge_after") {
        item.remark(
            RemarkKind::NoEffect,
            "a second attempt needs a provider with a certificate, and a task without a contract gets none",
        );
    }
}

/// How an unknown attempt of this task can end in this build.
fn remark_on_unknown(section: &Section<'_>, task: &Task, known: &Providers) {
    let mut ways = Vec::new();
    let mut providers = task.providers.iter().filter_map(|name| known.get(name)?.as_ref());
    if !task.linger.is_zero() && providers.any(|provider| provider.answers_calls()) {
        ways.push(format!("a late answer within {}", duration_text(task.linger)));
    }
    ways.push("an operator's word".to_owned());
    match task.on_unknown {
        OnUnknown::Hold => {}
        OnUnknown::AbandonAfter(after) => {
            ways.push(format!("being given up after {}, as declared", duration_text(after)));
        }
    }
    let message = format!("an unknown attempt ends by {}", ways.join(", or "));
    section.findings.remark(section.place, &section.path, RemarkKind::UnknownEndsBy, message);
}
