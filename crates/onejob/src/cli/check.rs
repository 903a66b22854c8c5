//! `onejob check`: reads a configuration exactly as `serve` does, and shows what it found.

#[cfg(test)]
mod tests;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use comfy_table::{Cell, Color, Table};
use onejob_core::Effects;
use serde_json::{Value, json};

use super::exit::Exit;
use super::screen::{Screen, Tone, safe};
use super::{CheckArgs, Stop, say};
use crate::config::{
    Config, ConfigError, ConfigErrors, OnUnknown, ProviderConfig, ProviderKind, Remark, RemarkKind, Task, duration_text,
};
use crate::provider::Provider;

/// Checks a configuration and tells what there is to tell.
pub(super) fn run(args: &CheckArgs) -> ExitCode {
    let mut screen = Screen::of_process();
    let exit = match check(args, &mut screen) {
        Ok(exit) => exit,
        Err(error) => say(&Stop::from(error), args.json, &mut screen),
    };
    ExitCode::from(exit.code())
}

/// The same on any screen.
pub(super) fn check(args: &CheckArgs, screen: &mut Screen) -> io::Result<Exit> {
    let file = args.config.display().to_string();
    let read = Config::load(&args.config).and_then(|config| openable(&file, config));
    if args.json {
        let document = read.as_ref().map_or_else(|errors| errors_json(&file, errors), |config| json(&file, config));
        screen.line(document.to_string())?;
    } else {
        match &read {
            Ok(config) => show(&file, config, screen)?,
            Err(errors) => show_errors(&file, errors, screen),
        }
    }
    Ok(if read.is_ok() { Exit::Good } else { Exit::JobNotDone })
}

/// `serve` opens every provider at its start: what fails then is an error now.
fn openable(file: &str, config: Config) -> Result<Config, ConfigErrors> {
    let opened = config.providers.values().map(|provider| (provider, Provider::open(provider)));
    let error = |(provider, opened): (&Arc<ProviderConfig>, Result<Provider, String>)| {
        let message = opened.err()?;
        Some(ConfigError { file: file.to_owned(), line: 0, key: format!("providers.{}", provider.name), message })
    };
    let errors: Vec<ConfigError> = opened.filter_map(error).collect();
    if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
}

fn show_errors(file: &str, errors: &ConfigErrors, screen: &mut Screen) {
    for error in &errors.0 {
        screen.note(safe(&error.to_string()));
    }
    let count = match errors.0.len() {
        1 => "1 error".to_owned(),
        many => format!("{many} errors"),
    };
    screen.notice(Tone::Bad, "error:", format!("{count} in {}; nothing would be served", safe(file)));
}

fn show(file: &str, config: &Config, screen: &mut Screen) -> io::Result<()> {
    let server = &config.server;
    let ok = screen.paint(Tone::Good, "ok");
    screen.line(format!(
        "{}: {ok}; listens on {}, keeps jobs in {}",
        safe(file),
        server.listen,
        safe(&server.store.to_string())
    ))?;
    let mut table = screen.table(&["provider", "kind", "model", "secrets", "concurrency"]);
    for provider in config.providers.values() {
        let shown = Shown::of(provider);
        table.add_row([
            provider.name.to_string(),
            shown.kind.to_owned(),
            shown.model.map_or_else(dash, safe),
            listed(&shown.secrets),
            provider.concurrency.to_string(),
        ]);
    }
    show_table(&table, screen)?;
    let mut table = screen.table(&[
        "task",
        "providers",
        "effects",
        "timeout",
        "linger",
        "tries",
        "on unknown",
        "answers must have",
    ]);
    for task in config.tasks.values() {
        table.add_row(task_row(task));
    }
    show_table(&table, screen)?;
    let mut table = screen.table(&["remark", "line", "key", "what"]);
    for remark in &config.remarks {
        table.add_row(remark_row(remark));
    }
    show_table(&table, screen)
}

/// A table with an empty line before it; nothing if it has no rows.
fn show_table(table: &Table, screen: &mut Screen) -> io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    screen.line("")?;
    screen.print_table(table)
}

fn task_row(task: &Task) -> [String; 8] {
    [
        task.name.to_string(),
        task.providers.join(", "),
        effects(task.effects).to_owned(),
        duration_text(task.attempt_timeout),
        duration_text(task.linger),
        format!("{} of {}", task.tries, task.max_attempts),
        on_unknown(task.on_unknown),
        listed(&demands(task)),
    ]
}

fn remark_row(remark: &Remark) -> [Cell; 4] {
    let (word, colour) = match remark.kind {
        RemarkKind::NotSupportedYet => ("not yet", Color::DarkYellow),
        RemarkKind::NoEffect => ("no effect", Color::DarkYellow),
        RemarkKind::UnknownEndsBy => ("unknown", Color::DarkCyan),
    };
    let line = if remark.line == 0 { dash() } else { remark.line.to_string() };
    [Cell::new(word).fg(colour), Cell::new(line), Cell::new(safe(&remark.key)), Cell::new(safe(&remark.message))]
}

/// What is shown of a provider; never a secret's value.
struct Shown<'a> {
    kind: &'static str,
    model: Option<&'a str>,
    secrets: Vec<&'a str>,
    idempotency_header: Option<&'a str>,
}

impl Shown<'_> {
    fn of(provider: &ProviderConfig) -> Shown<'_> {
        let nothing = Shown { kind: "", model: None, secrets: Vec::new(), idempotency_header: None };
        match &provider.kind {
            ProviderKind::Http(definition) => Shown {
                kind: "http",
                model: definition.settings.get("model").and_then(Value::as_str),
                secrets: definition.secrets.keys().map(String::as_str).collect(),
                idempotency_header: definition.idempotency_header.as_deref(),
            },
            ProviderKind::Simulated(_) => Shown { kind: "simulated", ..nothing },
            ProviderKind::Worker => Shown { kind: "worker", ..nothing },
        }
    }
}

fn effects(effects: Effects) -> &'static str {
    match effects {
        Effects::Exclusive => "exclusive",
        Effects::Racing => "racing",
    }
}

fn on_unknown(on_unknown: OnUnknown) -> String {
    match on_unknown {
        OnUnknown::Hold => "hold".to_owned(),
        OnUnknown::AbandonAfter(after) => format!("abandon after {}", duration_text(after)),
    }
}

/// What an answer must have before it may win.
fn demands(task: &Task) -> Vec<&'static str> {
    let output = &task.output;
    let demands =
        [("schema", output.schema.is_some()), ("no other keys", output.strict), ("rules", !output.rules.is_empty())];
    demands.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect()
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { dash() } else { safe(&names.join(", ")) }
}

fn dash() -> String {
    "-".to_owned()
}

fn errors_json(file: &str, errors: &ConfigErrors) -> Value {
    let errors: Vec<Value> = errors
        .0
        .iter()
        .map(|error| json!({"file": error.file, "line": error.line, "key": error.key, "message": error.message}))
        .collect();
    json!({"file": file, "ok": false, "errors": errors, "remarks": []})
}

fn json(file: &str, config: &Config) -> Value {
    let server = &config.server;
    let remarks: Vec<Value> = config
        .remarks
        .iter()
        .map(|r| json!({"kind": r.kind.as_str(), "line": r.line, "key": r.key, "message": r.message}))
        .collect();
    let providers: Vec<Value> = config.providers.values().map(|provider| provider_json(provider)).collect();
    let tasks: Vec<Value> = config.tasks.values().map(|task| task_json(task)).collect();
    json!({
        "file": file,
        "ok": true,
        "errors": [],
        "remarks": remarks,
        "server": {
            "listen": server.listen.to_string(),
            "store": server.store.to_string(),
            "public_url": server.public_url,
        },
        "providers": providers,
        "tasks": tasks,
    })
}

fn provider_json(provider: &ProviderConfig) -> Value {
    let shown = Shown::of(provider);
    json!({
        "name": &*provider.name,
        "kind": shown.kind,
        "model": shown.model,
        "secrets": shown.secrets,
        "idempotency_header": shown.idempotency_header,
        "concurrency": provider.concurrency,
    })
}

fn task_json(task: &Task) -> Value {
    let abandon_after = match task.on_unknown {
        OnUnknown::Hold => Value::Null,
        OnUnknown::AbandonAfter(after) => Value::from(duration_text(after)),
    };
    let providers: Vec<&str> = task.providers.iter().map(|name| &**name).collect();
    json!({
        "name": &*task.name,
        "providers": providers,
        "effects": effects(task.effects),
        "attempt_timeout": duration_text(task.attempt_timeout),
        "linger": duration_text(task.linger),
        "tries": task.tries,
        "max_attempts": task.max_attempts,
        "backoff": duration_text(task.backoff),
        "abandon_after": abandon_after,
        "has_schema": task.output.schema.is_some(),
        "strict": task.output.strict,
        "rules": task.output.rules.iter().map(|(text, _)| text).collect::<Vec<_>>(),
    })
}
