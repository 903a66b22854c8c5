//! `docs/configuration.md` against the loader: every key that is read stands on the page, every key on the
//! page is read, its defaults are the code's, and its blocks are one configuration that loads.

use std::collections::{BTreeMap, BTreeSet};

use super::super::section::Findings;
use super::super::{Task, defaults, duration_text, load, preset};
use super::{CASES, FULL, Folder};

const PAGE: &str = include_str!("../../../../../docs/configuration.md");

/// A row of one of the page's tables.
struct Row {
    /// The key with `<name>` for what the file names, such as `tasks.<name>.tries`.
    key: String,
    default: String,
}

/// The text between the first pair of backticks.
fn code(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}

/// The rows under headings that name a table, such as `[tasks.<name>.chat]`; or under a preset's name.
fn rows(of_presets: bool) -> Vec<Row> {
    let mut heading = None;
    let mut rows = Vec::new();
    for line in PAGE.lines() {
        if line.starts_with('#') {
            let is_preset = line.contains("# Preset `");
            heading = code(line).filter(|_| is_preset == of_presets).map(|name| match name.strip_prefix("[[") {
                Some(name) => format!("{}[]", name.trim_end_matches("]]")),
                None => name.trim_matches(['[', ']']).to_owned(),
            });
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        if let (Some(heading), Some(key), true) = (&heading, code(cells[0]), line.starts_with("| `")) {
            let default = cells.get(2).map_or("", |cell| cell.trim_matches([' ', '|'])).to_owned();
            rows.push(Row { key: format!("{heading}.{key}"), default });
        }
    }
    rows
}

/// Every key that the loader looks for in the complete example.
fn asked() -> BTreeSet<String> {
    let folder = Folder::new();
    let env = |name: &str| folder.env.get(name).cloned();
    let findings = Findings::new(folder.path(), &env);
    load::read(&findings, FULL, "onejob.toml").unwrap();
    findings.asked()
}

#[test]
fn every_key_that_is_read_stands_on_the_page() {
    // What a table contains documents the table.
    let mut documented = BTreeSet::new();
    for row in rows(false) {
        let mut key = row.key.as_str();
        documented.insert(key.to_owned());
        while let Some((outer, _)) = key.rsplit_once('.') {
            documented.insert(outer.trim_end_matches("[]").to_owned());
            key = outer;
        }
    }
    let missing: Vec<_> = asked().difference(&documented).cloned().collect();
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
}

#[test]
fn every_key_on_the_page_is_read_and_stands_there_once() {
    let asked = asked();
    let mut seen = BTreeSet::new();
    for row in rows(false) {
        assert!(asked.contains(&row.key), "nobody reads {}", row.key);
        assert!(seen.insert(row.key.clone()), "{} stands twice", row.key);
    }
    assert!(seen.len() > 80, "{}", seen.len());
}

#[test]
fn the_defaults_on_the_page_are_those_of_the_code() {
    let page: BTreeMap<String, String> = rows(false).into_iter().map(|row| (row.key, row.default)).collect();
    for (key, default) in [
        ("server.listen", defaults::LISTEN.to_owned()),
        ("server.store", defaults::STORE.to_owned()),
        ("server.max_in_flight", defaults::MAX_IN_FLIGHT.to_string()),
        ("server.max_open_requests", defaults::MAX_OPEN_REQUESTS.to_string()),
        ("server.max_body_bytes", defaults::MAX_BODY_BYTES.to_string()),
        ("server.header_timeout", duration_text(defaults::HEADER_TIMEOUT)),
        ("server.body_timeout", duration_text(defaults::BODY_TIMEOUT)),
        ("server.max_wait", duration_text(defaults::MAX_WAIT)),
        ("server.shutdown_grace", duration_text(defaults::SHUTDOWN_GRACE)),
        ("server.retention", duration_text(defaults::RETENTION)),
        ("server.sqlite_cache_bytes", defaults::SQLITE_CACHE_BYTES.to_string()),
        ("providers.<name>.concurrency", defaults::CONCURRENCY.to_string()),
        ("providers.<name>.connect_timeout", duration_text(defaults::CONNECT_TIMEOUT)),
        ("providers.<name>.max_answer_bytes", defaults::MAX_ANSWER_BYTES.to_string()),
        ("providers.<name>.request.method", defaults::METHOD.to_owned()),
        ("tasks.<name>.attempt_timeout", duration_text(defaults::ATTEMPT_TIMEOUT)),
        ("tasks.<name>.linger", duration_text(defaults::LINGER)),
        ("tasks.<name>.tries", defaults::TRIES.to_string()),
        ("tasks.<name>.max_attempts", defaults::MAX_ATTEMPTS.to_string()),
        ("tasks.<name>.backoff", duration_text(defaults::BACKOFF)),
        ("tasks.<name>.contract.repeat", defaults::REPEAT.to_string()),
        ("tasks.<name>.contract.valid_for", duration_text(defaults::VALID_FOR)),
        ("tasks.<name>.contract.token_tolerance", defaults::TOKEN_TOLERANCE.to_string()),
        ("tasks.<name>.contract.probe_tokens", defaults::PROBE_TOKENS.to_string()),
    ] {
        assert_eq!(page[key], format!("`{default}`"), "{key}");
    }
}

#[test]
fn the_presets_on_the_page_are_those_of_the_binary() {
    let page: BTreeMap<String, String> = rows(true).into_iter().map(|row| (row.key, row.default)).collect();
    let mut shipped = BTreeMap::new();
    for (name, _) in preset::PRESETS {
        for setting in preset::settings(name) {
            let default = match (setting.default_text(), setting.optional) {
                (Some(default), _) => format!("`{default}`"),
                (None, true) => "not sent".to_owned(),
                (None, false) => "must be given".to_owned(),
            };
            assert!(PAGE.contains(&format!("| `{}` | {} |", setting.name, setting.about)), "{name}: {}", setting.about);
            shipped.insert(format!("{name}.{}", setting.name), default);
        }
    }
    assert_eq!(page, shipped);
}

#[test]
fn the_blocks_on_the_page_are_one_configuration_that_loads() {
    let folder = Folder::new();
    let blocks = |fence: &str| {
        let fence = format!("```{fence}\n");
        PAGE.split(&fence).skip(1).map(|part| part.split("```").next().unwrap_or_default()).collect::<Vec<_>>()
    };
    let cases = blocks("toml contracts/summarize.toml");
    assert_eq!(cases.len(), 1);
    assert_ne!(cases[0], CASES);
    folder.write("contracts/summarize.toml", cases[0]);
    let config = folder.parse(&blocks("toml").join("\n")).unwrap_or_else(|errors| panic!("{errors}"));
    let tasks: Vec<&Task> = config.tasks.values().map(|task| &**task).collect();
    assert_eq!(tasks.len(), 2);
    assert!(config.providers.len() >= 5);
}
