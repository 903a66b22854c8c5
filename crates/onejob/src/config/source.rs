//! TOML with places: every value knows the file and the line it came from, in the file's own order,
//! so that any finding about it can name them.

use toml::de::{DeTable, DeValue};

/// Where something stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    /// Index into the list of files that were read.
    pub file: usize,
    /// 1-based; 0 for the file as a whole.
    pub line: usize,
}

/// A value and the line of its key, or its own line if it is an element of an array.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub place: Place,
    pub content: Content,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub(super) enum Content {
    String(String),
    /// As written, and as a number if it fits.
    Integer(String, Option<i64>),
    /// As written, and as a number.
    Float(String, f64),
    Boolean(bool),
    Datetime,
    Array(Vec<Node>),
    Table(Table),
}

/// A table's members in the order of the file.
#[derive(Clone, Default, Debug)]
pub(super) struct Table {
    pub entries: Vec<(String, Node)>,
}

impl Content {
    /// What it is, with an article, for "expected …, found …".
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Content::String(_) => "a string",
            Content::Integer(..) => "an integer",
            Content::Float(..) => "a float",
            Content::Boolean(_) => "a boolean",
            Content::Datetime => "a date or time",
            Content::Array(_) => "an array",
            Content::Table(_) => "a table",
        }
    }
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Takes a member out.
    pub(super) fn remove(&mut self, key: &str) -> Option<Node> {
        let at = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.remove(at).1)
    }

    /// This table with `over` laid over it: tables are merged member by member, anything else is
    /// replaced. What comes from `over` keeps its place.
    pub(super) fn overlaid(mut self, over: &Table) -> Table {
        for (key, above) in &over.entries {
            let below = self.entries.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node);
            match below {
                Some(below) => below.overlay(above),
                None => self.entries.push((key.clone(), above.clone())),
            }
        }
        self
    }
}

impl Node {
    fn overlay(&mut self, above: &Node) {
        match (&mut self.content, &above.content) {
            (Content::Table(below), Content::Table(over)) => {
                *below = std::mem::take(below).overlaid(over);
                self.place = above.place;
            }
            _ => *self = above.clone(),
        }
    }
}

/// A syntax error: its line and what is wrong.
pub(super) type SyntaxError = (usize, String);

/// Reads a TOML text; `file` is its index in the list of files.
///
/// # Errors
///
/// All syntax errors with their lines.
pub(super) fn parse(text: &str, file: usize) -> Result<Table, Vec<SyntaxError>> {
    let lines = Lines::of(text, file);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(lines.table(table.get_ref()));
    }
    let line = |span: Option<std::ops::Range<usize>>| span.map_or(1, |span| lines.at(span.start).line);
    Err(errors.iter().map(|error| (line(error.span()), error.message().replace('\n', ", "))).collect())
}

/// Byte offsets of a text turned into lines.
struct Lines {
    file: usize,
    starts: Vec<usize>,
}

impl Lines {
    fn of(text: &str, file: usize) -> Lines {
        let after_newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Lines { file, starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    fn at(&self, offset: usize) -> Place {
        Place { file: self.file, line: self.starts.partition_point(|start| *start <= offset) }
    }

    fn table(&self, table: &DeTable<'_>) -> Table {
        // The parser sorts members by name; their keys' offsets give the file's order back.
        let mut members: Vec<_> = table.iter().collect();
        members.sort_by_key(|(key, _)| key.span().start);
        let entries = members
            .into_iter()
            .map(|(key, value)| {
                let node = Node { place: self.at(key.span().start), content: self.content(value.get_ref()) };
                (key.get_ref().to_string(), node)
            })
            .collect();
        Table { entries }
    }

    fn content(&self, value: &DeValue<'_>) -> Content {
        match value {
            DeValue::String(text) => Content::String(text.to_string()),
            DeValue::Integer(number) => {
                let value = i64::from_str_radix(number.as_str(), number.radix()).ok();
                Content::Integer(number.to_string(), value)
            }
            DeValue::Float(number) => {
                Content::Float(number.as_str().to_owned(), number.as_str().parse().unwrap_or(f64::NAN))
            }
            DeValue::Boolean(value) => Content::Boolean(*value),
            DeValue::Datetime(_) => Content::Datetime,
            DeValue::Array(elements) => Content::Array(
                elements
                    .iter()
                    .map(|element| Node {
                        place: self.at(element.span().start),
                        content: self.content(element.get_ref()),
                    })
                    .collect(),
            ),
            DeValue::Table(table) => Content::Table(self.table(table)),
        }
    }
}
