//! `[providers.*]`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onejob_core::{Line, Override};
use serde_json::Value;

use super::preset::{self, Preset, Setting};
use super::section::{Item, Section, plain};
use super::source::{Content, Node};
use super::text::{Known, Names, OVER_INPUT, string_template, template};
use super::{
    HttpDefinition, OutputMode, ProviderConfig, ProviderKind, ResponseDefinition, Secret, SimulatedDefinition,
    defaults, digest, later, tokenizer,
};
use crate::template::Template;

/// Headers that are the connection's own business, or onejob's.
const RESERVED_HEADERS: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "onejob-attempt-id",
    "onejob-job-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const METHODS: &[(&str, &str)] =
    &[("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH"), ("GET", "GET"), ("DELETE", "DELETE")];

#[derive(Clone, Copy)]
enum Kind {
    Http,
    Simulated,
    Worker,
}

const KINDS: &[(&str, Kind)] = &[("http", Kind::Http), ("simulated", Kind::Simulated), ("worker", Kind::Worker)];

/// Reads one provider.
pub(super) fn read(name: &str, item: &Item<'_>) -> Option<ProviderConfig> {
    let Content::Table(own) = &item.node.content else {
        return item.section("a table such as { kind = \"simulated\" }").and(None);
    };
    let outer = item.section("a table")?;
    let named = outer.get("preset");
    let Some(named) = named else { return read_merged(name, item, &[]) };
    let Preset { definition, settings } = preset::read(&named)?;
    let merged = Node { place: item.place(), content: Content::Table(definition.overlaid(own)) };
    read_merged(name, &item.with(&merged), &settings)
}

fn read_merged(name: &str, item: &Item<'_>, settings: &[Setting]) -> Option<ProviderConfig> {
    let section = item.section("a table")?;
    let has_preset = section.get("preset").is_some();
    let kind = match section.get("kind") {
        Some(kind) => kind.word(KINDS),
        None => {
            section.missing("kind", "\"http\", \"simulated\" or \"worker\", or a preset such as \"openai-chat\"");
            None
        }
    };
    // Without a kind nobody can tell which keys belong here.
    let kind = kind?;
    let concurrency = section.get("concurrency").and_then(|item| item.whole(1..=100_000, ""));
    let kind = match kind {
        Kind::Http => http(&section, settings).map(|definition| ProviderKind::Http(Box::new(definition))),
        Kind::Simulated => Some(ProviderKind::Simulated(SimulatedDefinition {
            behaviour: section.get("behaviour").and_then(|item| template(&item, OVER_INPUT)),
        })),
        Kind::Worker => {
            section.not_yet("workers that pull are not supported yet: nothing is ever sent to this provider");
            Some(ProviderKind::Worker)
        }
    };
    let names: Vec<&str> = settings.iter().map(|setting| setting.name.as_str()).collect();
    debug_assert!(has_preset || names.is_empty());
    section.end(&names);
    let concurrency = concurrency.and_then(|n| usize::try_from(n).ok()).unwrap_or(defaults::CONCURRENCY);
    let kind = kind?;
    let (settings, files) = match &kind {
        ProviderKind::Http(http) => (Some(&http.settings), http.tokenizer.as_ref().map(|tokenizer| &tokenizer.digests)),
        ProviderKind::Simulated(_) | ProviderKind::Worker => (None, None),
    };
    let digest = digest::of_provider(item.node, settings, files);
    Some(ProviderConfig { name: name.into(), concurrency, kind, digest })
}

fn http(section: &Section<'_>, settings: &[Setting]) -> Option<HttpDefinition> {
    let mut known = Known::default();
    known.settings.extend(settings.iter().map(|setting| setting.name.clone()));
    let secrets = secrets(section, &mut known);
    let output_modes = output_modes(settings);
    let settings = read_settings(section, settings);
    let second = Duration::from_secs(1);
    let connect_timeout =
        section.get("connect_timeout").and_then(|item| item.duration(Duration::from_millis(1)..=300 * second));
    let max_answer_bytes = section.get("max_answer_bytes").and_then(|item| item.whole(1..=1 << 32, "of bytes"));
    let max_answer_bytes = max_answer_bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let ca_file = section.get("ca_file").and_then(|item| {
        let (path, _) = item.file("certs/ca.pem")?;
        Some(path)
    });
    let request = section.need("request", "a table with at least the url").and_then(|item| request(&item, &known));
    let response = section.get("response").map_or(Some(ResponseDefinition::default()), |item| response(&item, &known));
    let outcomes = section.get("outcomes").and_then(|item| outcomes(&item)).unwrap_or_default();
    let idempotency = section.get("idempotency");
    let idempotency_header = idempotency.as_ref().and_then(later::idempotency);
    later::read(section, &known);
    let tokenizer = section.get("tokenizer").and_then(|item| tokenizer::read(&item, &known)).map(Arc::new);
    let Request { method, url, headers, body } = request?;
    if let Some(item) = idempotency
        && headers.iter().any(|(name, _)| Some(name) == idempotency_header.as_ref())
    {
        item.error("names a header that request.headers gives too: remove it there, it carries the attempt's id");
    }
    let response = response?;
    let definition = HttpDefinition {
        secrets,
        settings,
        output_modes,
        method,
        url,
        headers,
        body,
        response,
        outcomes,
        idempotency_header,
        connect_timeout: connect_timeout.unwrap_or(defaults::CONNECT_TIMEOUT),
        max_answer_bytes: max_answer_bytes.unwrap_or(defaults::MAX_ANSWER_BYTES),
        ca_file,
        tokenizer,
    };
    check_key(section, &definition, &known);
    if section.get("callback").is_none() && definition.templates().any(|t| t.names().contains("callback_url")) {
        section.not_yet("callbacks are not supported yet: what the provider sends to callback_url is not read");
    }
    Some(definition)
}

/// The service that a preset stands for asks for a key; another server may do without.
fn check_key(section: &Section<'_>, definition: &HttpDefinition, known: &Known) {
    let has_own_base = section.setting("base_url").is_some();
    let reads_key = definition.templates().any(|template| template.members("secret").contains("api_key"));
    if let Some(base) = definition.settings.get("base_url").and_then(Value::as_str)
        && reads_key
        && !has_own_base
        && !known.secrets.contains("api_key")
    {
        let expected = format!("{{ env = \"NAME\" }} or {{ file = \"path\" }}: {base} asks for a key");
        section.missing("api_key", &expected);
    }
}

fn read_settings(section: &Section<'_>, settings: &[Setting]) -> serde_json::Map<String, Value> {
    let mut values = serde_json::Map::new();
    for Setting { name, about, default, optional, one_of } in settings {
        let value = match (section.setting(name), default) {
            (Some(item), _) if name == "base_url" => base_url(&item),
            (Some(item), _) if !one_of.is_empty() => {
                let words: Vec<(&str, &str)> = one_of.iter().map(|word| (word.as_str(), word.as_str())).collect();
                item.word(&words).map(Value::from)
            }
            (Some(item), _) => item.json(),
            (None, Some(default)) => section.default(name, default).json(),
            (None, None) if *optional => None,
            (None, None) => {
                section.missing(name, about);
                None
            }
        };
        if let Some(value) = value {
            values.insert(name.clone(), value);
        }
    }
    values
}

/// The modes that a preset's setting of that name lets one choose from.
fn output_modes(settings: &[Setting]) -> Vec<OutputMode> {
    let setting = settings.iter().find(|setting| setting.name == "output_mode");
    setting
        .map(|setting| setting.one_of.iter().filter_map(|word| OutputMode::parse(word)).collect())
        .unwrap_or_default()
}

/// What presets put their paths behind.
fn base_url(item: &Item<'_>) -> Option<Value> {
    let text = item.string("http://127.0.0.1:8000/v1")?;
    if !is_http_url(text) {
        item.error(format!("expected an http or https URL such as \"http://127.0.0.1:8000/v1\", found {text:?}"));
        return None;
    }
    Some(Value::from(text.trim_end_matches('/')))
}

fn is_http_url(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    })
}

fn secrets(section: &Section<'_>, known: &mut Known) -> BTreeMap<String, Secret> {
    let mut secrets = BTreeMap::new();
    if let Some(mut all) = section.get("secrets").and_then(|item| item.section("a table of secrets")) {
        for (name, item) in all.members() {
            known.secrets.insert(name.to_owned());
            if let Some(value) = secret(&item) {
                secrets.insert(name.to_owned(), value);
            }
        }
    }
    if let Some(item) = section.get("api_key") {
        if !known.secrets.insert("api_key".to_owned()) {
            item.error("is short for secrets.api_key, which is given too: keep one of them");
        }
        if let Some(value) = secret(&item) {
            secrets.insert("api_key".to_owned(), value);
        }
    }
    secrets
}

/// `{ env = "NAME" }` or `{ file = "path" }`. No error repeats what was read.
pub(super) fn secret(item: &Item<'_>) -> Option<Secret> {
    let expected = "{ env = \"NAME\" } or { file = \"path\" }; secrets do not stand in this file";
    let section = item.section(expected)?;
    let (env, file) = (section.get("env"), section.get("file"));
    section.end(&[]);
    let (item, from, value) = match (env, file) {
        (Some(item), None) => {
            let name = item.string("OPENAI_API_KEY")?;
            let value = (item.findings.env)(name);
            if value.is_none() {
                item.error(format!("the environment variable {name} is not set"));
            }
            (item, format!("the environment variable {name}"), value?)
        }
        (None, Some(item)) => {
            let path = item.path("secrets/api-key")?;
            match std::fs::read_to_string(&path) {
                Ok(text) => (item, path.display().to_string(), text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => {
                    item.error(format!("cannot read {}: {}", path.display(), plain(&error)));
                    return None;
                }
            }
        }
        (None, None) | (Some(_), Some(_)) => {
            section_error(item, expected);
            return None;
        }
    };
    if value.is_empty() {
        item.error(format!("{from} is empty"));
        return None;
    }
    if value.chars().any(char::is_control) {
        item.error(format!("{from} holds a line break or another control character"));
        return None;
    }
    Some(Secret::new(value))
}

fn section_error(item: &Item<'_>, expected: &str) {
    item.error(format!("expected {expected}"));
}

struct Request {
    method: String,
    url: Template,
    headers: Vec<(String, Template)>,
    body: Option<Template>,
}

fn request(item: &Item<'_>, known: &Known) -> Option<Request> {
    let section = item.section("a table")?;
    let method = section.get("method").map_or(Some(defaults::METHOD), |item| item.word(METHODS));
    let url = section.need("url", "a URL such as \"https://api.example.com/v1/posters\"");
    let url = url.and_then(|item| url_template(&item, known.request()));
    let headers = section.get("headers").map_or(Some(Vec::new()), |item| headers(&item, known.request()));
    let body = section.get("body").map(|item| template(&item, known.request()));
    section.end(&[]);
    let body = match body {
        Some(None) => return None,
        Some(Some(body)) => Some(body),
        None => None,
    };
    Some(Request { method: method?.to_owned(), url: url?, headers: headers?, body })
}

/// A URL whose fixed beginning, if it has one, is http or https.
pub(super) fn url_template(item: &Item<'_>, names: Names<'_>) -> Option<Template> {
    let example = "https://api.example.com/v1/posters";
    let text = item.string(example)?;
    let fixed = text.find("{{").or(text.find("{%")).map_or(text, |at| &text[..at]);
    let good = match fixed.len() {
        0 => !text.is_empty(),
        length if length == text.len() => is_http_url(text),
        _ => fixed.starts_with("https://") || fixed.starts_with("http://"),
    };
    if !good {
        item.error(format!("expected an http or https URL such as {example:?}, found {text:?}"));
        return None;
    }
    if !names_its_host(text, fixed) {
        item.error(format!(
            "the host must be written out and end with a slash, or come from the provider's own settings as in \
             \"{{{{ provider.base_url }}}}/v1\": what a caller sends must not choose where a request goes; found {text:?}"
        ));
        return None;
    }
    template(item, names)
}

/// Whether no input can change the host of this URL; `fixed` is its text before the first template.
fn names_its_host(text: &str, fixed: &str) -> bool {
    if fixed.len() == text.len() {
        return true;
    }
    if let Some((_, rest)) = fixed.split_once("://") {
        return rest.contains('/');
    }
    let setting = text.strip_prefix("{{").and_then(|rest| rest.split_once("}}"));
    setting.is_some_and(|(expression, rest)| {
        let name = expression.trim().strip_prefix("provider.").unwrap_or_default();
        let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        plain && (rest.is_empty() || rest.starts_with('/'))
    })
}

/// Header names and templates for their values.
pub(super) fn headers(item: &Item<'_>, names: Names<'_>) -> Option<Vec<(String, Template)>> {
    let mut section = item.section("a table of strings such as { authorization = \"Bearer {{ secret.api_key }}\" }")?;
    let mut headers = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, item) in section.members() {
        let lower = name.to_ascii_lowercase();
        if header_name(&item, name).is_none() {
            continue;
        }
        if !seen.insert(lower.clone()) {
            item.error("this header is given twice: upper and lower case are the same");
            continue;
        }
        if let Some(value) = string_template(&item, "Bearer {{ secret.api_key }}", names) {
            headers.push((lower, value));
        }
    }
    Some(headers)
}

/// Whether a header of this name may be sent by a definition (RFC 9110, section 5.6.2).
pub(super) fn header_name(item: &Item<'_>, name: &str) -> Option<String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        item.error(format!("expected a header name such as \"x-api-key\", found {name:?}"));
        return None;
    }
    let name = name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&name.as_str()) {
        item.error(format!("the header {name:?} is set by onejob itself"));
        return None;
    }
    Some(name)
}

fn response(item: &Item<'_>, known: &Known) -> Option<ResponseDefinition> {
    let section = item.section("a table")?;
    let any = |key| section.get(key).and_then(|item| template(&item, known.answer()));
    let text = |key, example: &str| section.get(key).and_then(|item| string_template(&item, example, known.answer()));
    let response = ResponseDefinition {
        output: any("output"),
        model: text("model", "{{ body.model }}"),
        usage: section.get("usage").and_then(|item| usage(&item, known.answer())),
        handle: section.get("handle").and_then(|item| handle(&item, known)),
        failed: text("failed", "{{ body.status == 'error' }}"),
        error: text("error", "{{ body.error.message }}"),
        truncated: text("truncated", "{{ body.finish_reason == 'length' }}"),
    };
    section.end(&[]);
    Some(response)
}

fn handle(item: &Item<'_>, known: &Known) -> Option<Template> {
    let template = string_template(item, "{{ body.id }}", known.answer());
    item.not_yet(
        "the handle is recorded; work in the background is not followed yet: without an operator's word the attempt is \
         unknown once its attempt_timeout is over",
    );
    template
}

/// Either one expression, or a table of the two counts.
pub(super) fn usage(item: &Item<'_>, names: Names<'_>) -> Option<Template> {
    if !item.is_string() {
        let section = item.section("a table such as { input_tokens = \"{{ body.usage.in }}\" }")?;
        for key in ["input_tokens", "output_tokens"] {
            if let Some(item) = section.get(key) {
                item.string("{{ body.usage.in }}")?;
            }
        }
        section.end(&[]);
    }
    template(item, names)
}

const LINES: [(&str, Line); 4] = [
    ("refused", Line::Refused),
    ("invalid", Line::Invalid),
    ("failed_there", Line::FailedThere),
    ("unknown", Line::Unknown),
];

fn outcomes(item: &Item<'_>) -> Option<Vec<Override>> {
    let section = item.section("a table such as { refused = [503] }")?;
    let mut outcomes: Vec<Override> = Vec::new();
    for (name, line) in LINES {
        let statuses = section.get(name).and_then(|item| item.array("statuses such as [503]"));
        for item in statuses.unwrap_or_default() {
            // A 2xx answer is read by `response`, and 1xx never ends a call.
            let Some(status) = item.whole(300..=599, "(an HTTP status)").and_then(|n| u16::try_from(n).ok()) else {
                continue;
            };
            if outcomes.iter().any(|known| known.status == status) {
                item.error(format!("the status {status} is given twice"));
            }
            outcomes.push(Override { status, line });
        }
    }
    section.end(&[]);
    Some(outcomes)
}
