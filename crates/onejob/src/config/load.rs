//! From a text to a [`Config`], or to all of its errors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use onejob_core::Text;

use super::section::{Findings, Item, Section, plain};
use super::source::{self, Place};
use super::{Config, provider, server, task};

/// Why a configuration is refused: all errors found, each with its place, in the order of the file.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// One error in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file as it was named.
    pub file: String,
    /// 1-based; 0 if it has no place in a file.
    pub line: usize,
    /// The key, such as `tasks.summarize.tries`; empty if it is about no key.
    pub key: String,
    /// What was wrong and what was expected.
    pub message: String,
}

impl std::error::Error for ConfigError {}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Config {
    /// Reads a configuration file and everything it names: schemas, secrets.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every error found.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        let name = path.display().to_string();
        let text = std::fs::read(path).map_err(|error| format!("cannot read it: {}", plain(&error)));
        let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned()));
        let text = text.map_err(|message| {
            ConfigErrors(vec![ConfigError { file: name.clone(), line: 0, key: String::new(), message }])
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Config::parse(&text, &name, base, &|variable| std::env::var(variable).ok())
    }

    /// A configuration from a text that uses neither environment nor relative files: for embedding,
    /// demos and tests.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every error found.
    pub fn from_text(text: &str) -> Result<Config, ConfigErrors> {
        Config::parse(text, "onejob.toml", Path::new(""), &|_| None)
    }

    /// Reads a configuration from a text. `name` is the file's name in errors, paths in the text are
    /// relative to `base`, and `env` gives the value of an environment variable.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every error found.
    pub fn parse(
        text: &str,
        name: &str,
        base: &Path,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigErrors> {
        let findings = Findings::new(base, env);
        let config = read(&findings, text, name);
        let remarks = findings.into_result()?;
        // Without an error there is a configuration.
        config.map(|config| Config { remarks, ..config }).ok_or(ConfigErrors(Vec::new()))
    }
}

/// Reads everything that can be read; what is missing from the result has an error in `findings`.
pub(super) fn read(findings: &Findings<'_>, text: &str, name: &str) -> Option<Config> {
    let file = findings.file(name);
    let table = match source::parse(text, file) {
        Ok(table) => table,
        Err(errors) => {
            for (line, message) in errors {
                findings.error(Place { file, line }, "", message);
            }
            return None;
        }
    };
    let root = Section::root(findings, &table, Place { file, line: 0 });
    let server = server::read(root.get("server").as_ref(), findings.base);
    let mut providers: task::Providers = BTreeMap::new();
    for (name, item) in named(&root, "providers") {
        let provider = check_name(name, &item).and_then(|()| provider::read(name, &item));
        providers.insert(name.into(), provider.map(Arc::new));
    }
    let mut tasks = BTreeMap::new();
    for (name, item) in named(&root, "tasks") {
        let task = check_name(name, &item).and_then(|()| task::read(name, &item, &providers));
        tasks.extend(task.map(|task| (Text::from(name), Arc::new(task))));
    }
    root.end(&[]);
    let providers = providers.into_iter().filter_map(|(name, provider)| Some((name, provider?))).collect();
    Some(Config { server: server?, providers, tasks, remarks: Vec::new() })
}

/// The members of `[providers]` or `[tasks]`.
fn named<'a>(root: &Section<'a>, key: &'static str) -> Vec<(&'a str, Item<'a>)> {
    let section = root.get(key).and_then(|item| item.section("a table"));
    section.map(|mut section| section.members()).unwrap_or_default()
}

/// Names stand in URLs, metrics and rows: 1–64 of `a-z`, `0-9`, `_` and `-`.
fn check_name(name: &str, item: &Item<'_>) -> Option<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Some(());
    }
    item.error(format!("expected a name of 1 to 64 of a-z, 0-9, \"_\" and \"-\", found {name:?}"));
    None
}
