//! Reading a table key by key. A section remembers which keys were asked for; whatever else stands in
//! it is an error when the section ends. So no key can be ignored by accident, and the list of keys
//! that the loader knows is the list of keys that it reads.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::duration::{duration_text, parse_duration};
use super::source::{Content, Node, Place, Table};
use super::{ConfigError, ConfigErrors, Remark, RemarkKind};

/// What is found while reading, over all files.
pub(super) struct Findings<'a> {
    /// Paths in the configuration are relative to this.
    pub base: &'a Path,
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    files: RefCell<Vec<String>>,
    errors: RefCell<Vec<(Place, ConfigError)>>,
    remarks: RefCell<Vec<(Place, Remark)>>,
    asked: RefCell<BTreeSet<String>>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(base: &'a Path, env: &'a dyn Fn(&str) -> Option<String>) -> Findings<'a> {
        let (files, errors, remarks, asked) = Default::default();
        Findings { base, env, files, errors, remarks, asked }
    }

    /// Adds a file under the name that errors give it.
    pub(super) fn file(&self, name: &str) -> usize {
        let mut files = self.files.borrow_mut();
        files.push(name.to_owned());
        files.len() - 1
    }

    pub(super) fn error(&self, place: Place, key: &str, message: impl Into<String>) {
        let file = self.files.borrow().get(place.file).cloned().unwrap_or_default();
        let error = ConfigError { file, line: place.line, key: key.to_owned(), message: message.into() };
        self.errors.borrow_mut().push((place, error));
    }

    pub(super) fn remark(&self, place: Place, key: &str, kind: RemarkKind, message: impl Into<String>) {
        // A preset's line is no line of the file that people read.
        let line = if place.file == 0 { place.line } else { 0 };
        let remark = Remark { key: key.to_owned(), line, kind, message: message.into() };
        self.remarks.borrow_mut().push((place, remark));
    }

    /// All errors in the order of the file, or all remarks.
    pub(super) fn into_result(self) -> Result<Vec<Remark>, ConfigErrors> {
        let mut errors = self.errors.into_inner();
        if errors.is_empty() {
            let mut remarks = self.remarks.into_inner();
            remarks.sort_by_key(|(place, _)| *place);
            return Ok(remarks.into_iter().map(|(_, remark)| remark).collect());
        }
        errors.sort_by_key(|(place, _)| *place);
        let mut errors: Vec<ConfigError> = errors.into_iter().map(|(_, error)| error).collect();
        errors.dedup();
        Err(ConfigErrors(errors))
    }

    /// Every key that was looked for, with `<name>` for the names that a file gives.
    #[cfg(test)]
    pub(super) fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }
}

/// A table that is read key by key.
pub(super) struct Section<'a> {
    pub findings: &'a Findings<'a>,
    /// Its key, such as `tasks.summarize`.
    pub path: String,
    pub place: Place,
    /// Its key with `<name>` for the names that the file gives.
    pattern: String,
    table: &'a Table,
    asked: RefCell<BTreeSet<&'static str>>,
    open_ended: bool,
}

impl<'a> Section<'a> {
    pub(super) fn root(findings: &'a Findings<'a>, table: &'a Table, place: Place) -> Section<'a> {
        Section {
            findings,
            path: String::new(),
            place,
            pattern: String::new(),
            table,
            asked: RefCell::default(),
            open_ended: false,
        }
    }

    /// The value of `key`, if there is one.
    pub(super) fn get(&self, key: &'static str) -> Option<Item<'a>> {
        self.asked.borrow_mut().insert(key);
        let pattern = joined(&self.pattern, key);
        self.findings.asked.borrow_mut().insert(pattern.clone());
        let node = self.table.get(key)?;
        Some(Item { findings: self.findings, path: joined(&self.path, key), pattern, node })
    }

    /// The value of `key`; an error if there is none. `expected` completes "is missing; expected …".
    pub(super) fn need(&self, key: &'static str, expected: &str) -> Option<Item<'a>> {
        let item = self.get(key);
        if item.is_none() {
            self.missing(key, expected);
        }
        item
    }

    pub(super) fn missing(&self, key: &str, expected: &str) {
        self.findings.error(self.place, &joined(&self.path, key), format!("is missing; expected {expected}"));
    }

    /// All members, whose names are the file's own choice.
    pub(super) fn members(&mut self) -> Vec<(&'a str, Item<'a>)> {
        self.open_ended = true;
        let pattern = joined(&self.pattern, "<name>");
        self.findings.asked.borrow_mut().insert(pattern.clone());
        let member = |(name, node): &'a (String, Node)| {
            let path = joined(&self.path, name);
            (name.as_str(), Item { findings: self.findings, path, pattern: pattern.clone(), node })
        };
        self.table.entries.iter().map(member).collect()
    }

    /// A member whose name the file does not choose but which is no fixed key either: a preset's setting.
    pub(super) fn setting(&self, name: &str) -> Option<Item<'a>> {
        let (key, node) = self.table.entries.iter().find(|(key, _)| key == name)?;
        let pattern = joined(&self.pattern, name);
        Some(Item { findings: self.findings, path: joined(&self.path, key), pattern, node })
    }

    /// A value for a member that the file does not give.
    pub(super) fn default<'b>(&self, name: &str, node: &'b Node) -> Item<'b>
    where
        'a: 'b,
    {
        Item { findings: self.findings, path: joined(&self.path, name), pattern: joined(&self.pattern, name), node }
    }

    pub(super) fn error(&self, message: impl Into<String>) {
        self.findings.error(self.place, &self.path, message);
    }

    /// A remark that this key is understood and not acted on.
    pub(super) fn not_yet(&self, message: &str) {
        self.findings.remark(self.place, &self.path, RemarkKind::NotSupportedYet, message);
    }

    /// Ends the section: every key that nobody asked for and that is not among `more` is an error.
    pub(super) fn end(self, more: &[&str]) {
        if self.open_ended {
            return;
        }
        let asked = self.asked.borrow();
        let known: Vec<&str> = asked.iter().copied().chain(more.iter().copied()).collect();
        for (key, node) in &self.table.entries {
            if !known.contains(&key.as_str()) {
                let path = joined(&self.path, key);
                self.findings.error(node.place, &path, format!("unknown key; {}", suggestion(key, &known)));
            }
        }
    }
}

/// A value and its key.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub findings: &'a Findings<'a>,
    pub path: String,
    pattern: String,
    pub node: &'a Node,
}

impl<'a> Item<'a> {
    pub(super) fn place(&self) -> Place {
        self.node.place
    }

    pub(super) fn error(&self, message: impl Into<String>) {
        self.findings.error(self.node.place, &self.path, message);
    }

    /// A remark that this key is understood and not acted on.
    pub(super) fn not_yet(&self, message: &str) {
        self.remark(RemarkKind::NotSupportedYet, message);
    }

    pub(super) fn remark(&self, kind: RemarkKind, message: &str) {
        self.findings.remark(self.node.place, &self.path, kind, message);
    }

    fn unexpected<T>(&self, expected: &str) -> Option<T> {
        self.error(format!("expected {expected}, found {}", self.node.content.kind()));
        None
    }

    /// A string; `example` is what one would look like here.
    pub(super) fn string(&self, example: &str) -> Option<&'a str> {
        match &self.node.content {
            Content::String(text) => Some(text),
            _ => self.unexpected(&format!("a string such as {example:?}")),
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match &self.node.content {
            Content::Boolean(value) => Some(*value),
            _ => self.unexpected("true or false"),
        }
    }

    /// A whole number within bounds; `unit` completes "a whole number …", such as "of bytes".
    pub(super) fn whole(&self, bounds: RangeInclusive<u64>, unit: &str) -> Option<u64> {
        let (low, high) = (bounds.start(), bounds.end());
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let expected = format!("a whole number{unit} from {low} to {high}");
        let Content::Integer(written, value) = &self.node.content else { return self.unexpected(&expected) };
        let value = value.and_then(|value| u64::try_from(value).ok()).filter(|value| bounds.contains(value));
        if value.is_none() {
            self.error(format!("expected {expected}, found {written}"));
        }
        value
    }

    pub(super) fn number(&self, bounds: RangeInclusive<f64>) -> Option<f64> {
        let expected = format!("a number from {} to {}", bounds.start(), bounds.end());
        let (written, value) = match &self.node.content {
            Content::Float(written, value) => (written, *value),
            Content::Integer(written, Some(value)) => (written, *value as f64),
            _ => return self.unexpected(&expected),
        };
        if !bounds.contains(&value) {
            self.error(format!("expected {expected}, found {written}"));
            return None;
        }
        Some(value)
    }

    /// A duration within bounds.
    pub(super) fn duration(&self, bounds: RangeInclusive<Duration>) -> Option<Duration> {
        let expected = "a duration as a string such as \"500ms\", \"30s\", \"10m\" or \"24h\"";
        let text = match &self.node.content {
            Content::String(text) => text,
            _ => return self.unexpected(expected),
        };
        let value = match parse_duration(text) {
            Ok(value) => value,
            Err(message) => {
                self.error(message);
                return None;
            }
        };
        if !bounds.contains(&value) {
            let (low, high) = (duration_text(*bounds.start()), duration_text(*bounds.end()));
            self.error(format!("expected a duration from \"{low}\" to \"{high}\", found {text:?}"));
            return None;
        }
        Some(value)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let Content::String(text) = &self.node.content else {
            return self.unexpected(&format!("one of {}", quoted(&names)));
        };
        let found = words.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
        if found.is_none() {
            self.error(format!("expected one of {}, found {text:?}", quoted(&names)));
        }
        found
    }

    /// The elements of an array; `of` names them in the plural.
    pub(super) fn array(&self, of: &str) -> Option<Vec<Item<'a>>> {
        let Content::Array(elements) = &self.node.content else { return self.unexpected(&format!("an array of {of}")) };
        Some(elements.iter().enumerate().map(|(at, node)| self.element(at, node)).collect())
    }

    fn element(&self, at: usize, node: &'a Node) -> Item<'a> {
        let path = format!("{}[{at}]", self.path);
        Item { findings: self.findings, path, pattern: format!("{}[]", self.pattern), node }
    }

    fn member(&self, key: &str, node: &'a Node) -> Item<'a> {
        Item { findings: self.findings, path: joined(&self.path, key), pattern: self.pattern.clone(), node }
    }

    /// An array of strings.
    pub(super) fn strings(&self, example: &str) -> Option<Vec<(&'a str, Item<'a>)>> {
        let items = self.array(&format!("strings such as [{example:?}]"))?;
        let strings: Vec<_> = items.iter().map(|item| item.string(example).map(|text| (text, item.clone()))).collect();
        strings.into_iter().collect()
    }

    /// A table to be read key by key.
    pub(super) fn section(&self, expected: &str) -> Option<Section<'a>> {
        let Content::Table(table) = &self.node.content else { return self.unexpected(expected) };
        Some(Section {
            findings: self.findings,
            path: self.path.clone(),
            place: self.node.place,
            pattern: self.pattern.clone(),
            table,
            asked: RefCell::default(),
            open_ended: false,
        })
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self.node.content, Content::String(_))
    }

    /// The same key with another value.
    pub(super) fn with<'b>(&self, node: &'b Node) -> Item<'b>
    where
        'a: 'b,
    {
        Item { findings: self.findings, path: self.path.clone(), pattern: self.pattern.clone(), node }
    }

    /// A path to a file, resolved against the configuration's folder.
    pub(super) fn path(&self, example: &str) -> Option<PathBuf> {
        let text = self.string(example)?;
        if text.is_empty() {
            self.error(format!("expected a path such as {example:?}, found an empty string"));
            return None;
        }
        Some(self.findings.base.join(text))
    }

    /// The bytes of the file that is named here.
    pub(super) fn file(&self, example: &str) -> Option<(PathBuf, Vec<u8>)> {
        let path = self.path(example)?;
        match std::fs::read(&path) {
            Ok(bytes) => Some((path, bytes)),
            Err(error) => {
                self.error(format!("cannot read {}: {}", path.display(), plain(&error)));
                None
            }
        }
    }

    /// The value as JSON, types kept. Dates have no JSON form and are errors.
    pub(super) fn json(&self) -> Option<Value> {
        match &self.node.content {
            Content::String(text) => Some(Value::String(text.clone())),
            Content::Boolean(value) => Some(Value::Bool(*value)),
            Content::Integer(_, Some(number)) => Some(Value::from(*number)),
            Content::Integer(written, None) => {
                self.error(format!("expected an integer of 64 bits, found {written}"));
                None
            }
            Content::Float(written, value) if !value.is_finite() => {
                self.error(format!("expected a finite number, found {written}: JSON has no such number"));
                None
            }
            Content::Float(_, value) => Some(Value::from(*value)),
            Content::Datetime => self.unexpected("a value that JSON has (write dates as strings)"),
            Content::Array(elements) => {
                let values: Vec<_> =
                    elements.iter().enumerate().map(|(at, node)| self.element(at, node).json()).collect();
                values.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
            }
            Content::Table(table) => {
                let members: Vec<_> =
                    table.entries.iter().map(|(key, node)| (key.clone(), self.member(key, node).json())).collect();
                let members = members.into_iter().map(|(key, value)| value.map(|value| (key, value)));
                members.collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
            }
        }
    }

    /// Every string in this value, however deep.
    pub(super) fn strings_inside(&self) -> Vec<Item<'a>> {
        match &self.node.content {
            Content::String(_) => vec![self.clone()],
            Content::Array(elements) => {
                elements.iter().enumerate().flat_map(|(at, node)| self.element(at, node).strings_inside()).collect()
            }
            Content::Table(table) => {
                table.entries.iter().flat_map(|(key, node)| self.member(key, node).strings_inside()).collect()
            }
            Content::Integer(..) | Content::Float(..) | Content::Boolean(_) | Content::Datetime => Vec::new(),
        }
    }

    /// Whether it stands in the user's file and not in a preset.
    pub(super) fn is_own(&self) -> bool {
        self.node.place.file == 0
    }
}

/// `outer.key`, with the key quoted where TOML would demand it.
fn joined(outer: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_<>".contains(&b));
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if outer.is_empty() { key } else { format!("{outer}.{key}") }
}

/// `"a", "b"`.
pub(super) fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// "did you mean …?" or the list of what there is.
pub(super) fn suggestion(found: &str, known: &[&str]) -> String {
    let close = known.iter().map(|name| (strsim::osa_distance(found, name), *name)).min();
    match close {
        Some((distance, name)) if distance <= 1 + found.chars().count() / 4 => format!("did you mean {name:?}?"),
        _ => format!("expected one of {}", quoted(known)),
    }
}

/// An I/O error without the system's number.
pub(super) fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        kind => kind.to_string(),
    }
}
