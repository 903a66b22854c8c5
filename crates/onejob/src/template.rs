//! Templates in definitions: minijinja, with JSON values that keep their types and exact numbers.
//!
//! Three kinds of strings: a plain one is itself; one whole expression (`{{ input.size }}`) becomes
//! the expression's value; anything else is text with expressions in it. Nothing is escaped, no
//! template can name another or a file, and every evaluation has a budget ([`FUEL`]).

mod known;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use minijinja::{AutoEscape, Environment, Error, ErrorKind, Expression, UndefinedBehavior};
use serde_json::Value;

pub(crate) use value::to_json;
use value::{Numbers, Step};

/// What one string may cost to evaluate, in minijinja's units: about one per instruction and one
/// per 64 bytes handled. Enough for several passes over megabytes; a loop inside a loop over an
/// attacker's list ends here, after some tens of milliseconds.
const FUEL: u64 = 2_000_000;

/// A value with templates in its strings, compiled. A string that is one whole expression
/// (`"{{ input.size }}"`) renders to the expression's value with its type; an expression that is
/// undefined, or meets something undefined, renders to nothing: the member or element is left out,
/// at the top there is no value. In the middle of text, undefined and null are errors.
/// Clones share what was compiled.
#[derive(Clone)]
pub struct Template(Arc<Compiled>);

struct Compiled {
    root: Node,
    /// Holds the strings that are text with expressions in it, by their number.
    texts: Environment<'static>,
}

/// An expression over JSON values: `output.bullets | length <= 5`.
pub struct Rule {
    expression: Expression<'static, 'static>,
    names: BTreeSet<String>,
}

/// Why a template does not compile or render. Never holds a rendered value, so that no secret and
/// no input leaks into a log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// JSON-pointer-like path of the string inside the compiled value, empty for the value itself.
    pub path: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// What templates see: named values, each a JSON value. Clones share the values.
#[derive(Clone, Default)]
pub struct Scope {
    values: Vec<(&'static str, Arc<Value>)>,
}

enum Node {
    /// No template in it.
    Literal(Value),
    /// `{{ input.items[0].name }}`: looked up in the JSON itself, so that it stays as it was written.
    Path {
        root: String,
        steps: Vec<Step>,
    },
    /// Any other whole expression.
    Expression(Expression<'static, 'static>),
    /// Text with expressions in it: its name in `texts`.
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Scope {
    /// An empty scope.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// The same scope with one more name.
    pub fn with(self, name: &'static str, value: Value) -> Scope {
        self.with_shared(name, Arc::new(value))
    }

    /// The same scope with one more name, for a value that is kept elsewhere too.
    pub fn with_shared(mut self, name: &'static str, value: Arc<Value>) -> Scope {
        self.values.push((name, value));
        self
    }

    /// The value of a name; the last one given stands.
    fn get(&self, name: &str) -> Option<&Arc<Value>> {
        self.values.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl Template {
    /// Compiles every string of `value`.
    ///
    /// # Errors
    ///
    /// The first string that is no template.
    pub fn compile(value: &Value) -> Result<Template, TemplateError> {
        let mut texts = environment();
        let root = compile(value, &mut texts)?;
        Ok(Template(Arc::new(Compiled { root, texts })))
    }

    /// Renders to a JSON value; `None` if the whole is one undefined expression.
    ///
    /// # Errors
    ///
    /// A template that fails at run time.
    pub fn render(&self, scope: &Scope) -> Result<Option<Value>, TemplateError> {
        self.0.render_node(&self.0.root, scope)
    }

    /// What a string begins with, whatever the scope holds: all of it up to its first expression.
    pub fn fixed_beginning(&self) -> Option<String> {
        match &self.0.root {
            Node::Literal(value) => value.as_str().map(str::to_owned),
            Node::Text(name) => {
                let template = self.0.texts.get_template(name).ok()?;
                let text = template.source();
                Some(text[..text.find("{{").or(text.find("{%")).unwrap_or(text.len())].to_owned())
            }
            Node::Path { .. } | Node::Expression(_) | Node::List(_) | Node::Object(_) => None,
        }
    }

    /// The names of the scope that the template reads, such as `input`; for checks at load.
    pub fn names(&self) -> BTreeSet<String> {
        self.paths().into_iter().map(|path| path.split('.').next().unwrap_or_default().to_owned()).collect()
    }

    /// The members of one name of the scope that the template reads by name, such as `api_key` of
    /// `secret`; for checks at load.
    pub fn members(&self, name: &str) -> BTreeSet<String> {
        let member = |path: &String| {
            let inside = path.strip_prefix(name)?.strip_prefix('.')?;
            Some(inside.split('.').next().unwrap_or(inside).to_owned())
        };
        self.paths().iter().filter_map(member).collect()
    }

    /// What is read of the scope: `input`, `secret.api_key`.
    fn paths(&self) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        self.0.collect_paths(&self.0.root, &mut paths);
        paths
    }
}

impl Compiled {
    fn render_node(&self, node: &Node, scope: &Scope) -> Result<Option<Value>, TemplateError> {
        match node {
            Node::Literal(value) => Ok(Some(value.clone())),
            Node::Path { root, steps } => Ok(scope.get(root).and_then(|value| value::walk(value, steps)).cloned()),
            Node::Expression(expression) => evaluate(expression, scope),
            Node::Text(name) => self.render_text(name, scope).map(|text| Some(Value::String(text))),
            Node::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    list.extend(self.render_node(item, scope).map_err(|e| e.below(index))?);
                }
                Ok(Some(Value::Array(list)))
            }
            Node::Object(members) => {
                let mut object = serde_json::Map::with_capacity(members.len());
                for (key, member) in members {
                    if let Some(value) = self.render_node(member, scope).map_err(|e| e.below(key))? {
                        object.insert(key.clone(), value);
                    }
                }
                Ok(Some(Value::Object(object)))
            }
        }
    }

    fn render_text(&self, name: &str, scope: &Scope) -> Result<String, TemplateError> {
        let template = self.texts.get_template(name).map_err(|e| describe(&e))?;
        template.render(value::context(scope, Numbers::Exact)).map_err(|error| match error.kind() {
            ErrorKind::UndefinedError => undefined(template.undeclared_variables(true), scope),
            _ => describe(&error),
        })
    }

    fn collect_paths(&self, node: &Node, paths: &mut BTreeSet<String>) {
        match node {
            Node::Literal(_) => {}
            Node::Path { root, steps } => {
                let path = match steps.first() {
                    Some(Step::Member(member)) => format!("{root}.{member}"),
                    Some(Step::Element(_)) | None => root.clone(),
                };
                paths.insert(path);
            }
            Node::Expression(expression) => paths.extend(own_names(expression.undeclared_variables(true))),
            Node::Text(name) => {
                if let Ok(template) = self.texts.get_template(name) {
                    paths.extend(own_names(template.undeclared_variables(true)));
                }
            }
            Node::List(items) => items.iter().for_each(|item| self.collect_paths(item, paths)),
            Node::Object(members) => members.iter().for_each(|(_, member)| self.collect_paths(member, paths)),
        }
    }
}

impl Rule {
    /// Compiles one expression.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn compile(text: &str) -> Result<Rule, TemplateError> {
        let expression = EXPRESSIONS.compile_expression_owned(text.to_owned()).map_err(|e| describe(&e))?;
        known::check_expression(&EXPRESSIONS, text)?;
        let names = own_names(expression.undeclared_variables(false)).collect();
        Ok(Rule { expression, names })
    }

    /// Whether it holds. Numbers compare as numbers do in JavaScript: integers exactly up to 128
    /// bits, everything else as 64-bit floating point.
    ///
    /// # Errors
    ///
    /// If it cannot be evaluated, for instance because something in it is undefined.
    pub fn holds(&self, scope: &Scope) -> Result<bool, TemplateError> {
        match self.expression.eval(value::context(scope, Numbers::Computable)) {
            Ok(value) if value.is_undefined() => Err(undefined(self.expression.undeclared_variables(true), scope)),
            Ok(value) => Ok(value.is_true()),
            Err(error) if error.kind() == ErrorKind::UndefinedError => {
                Err(undefined(self.expression.undeclared_variables(true), scope))
            }
            Err(error) => Err(describe(&error)),
        }
    }

    /// The names of the scope that the rule reads; for checks at load.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }
}

impl TemplateError {
    fn new(message: impl Into<String>) -> TemplateError {
        TemplateError { path: String::new(), message: message.into() }
    }

    /// The same error, seen from one level further up.
    fn below(mut self, step: impl std::fmt::Display) -> TemplateError {
        self.path = format!("/{step}{}", self.path);
        self
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Template")
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rule")
    }
}

fn compile(value: &Value, texts: &mut Environment<'static>) -> Result<Node, TemplateError> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Node::Literal(value.clone())),
        Value::String(text) => compile_string(text, texts),
        Value::Array(items) => {
            let compiled = items.iter().enumerate().map(|(i, item)| compile(item, texts).map_err(|e| e.below(i)));
            let nodes = compiled.collect::<Result<Vec<_>, _>>()?;
            let plain = nodes.iter().all(|node| matches!(node, Node::Literal(_)));
            Ok(if plain { Node::Literal(value.clone()) } else { Node::List(nodes) })
        }
        Value::Object(members) => {
            let compiled = members
                .iter()
                .map(|(key, member)| compile(member, texts).map(|node| (key.clone(), node)).map_err(|e| e.below(key)));
            let nodes = compiled.collect::<Result<Vec<_>, _>>()?;
            let plain = nodes.iter().all(|(_, node)| matches!(node, Node::Literal(_)));
            Ok(if plain { Node::Literal(value.clone()) } else { Node::Object(nodes) })
        }
    }
}

fn compile_string(text: &str, texts: &mut Environment<'static>) -> Result<Node, TemplateError> {
    if !text.contains("{{") && !text.contains("{%") {
        return Ok(Node::Literal(Value::String(text.to_owned())));
    }
    if let Some(inside) = text.strip_prefix("{{").and_then(|t| t.strip_suffix("}}")) {
        let inside = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        if let Some((root, steps)) = value::parse_path(inside) {
            return Ok(Node::Path { root, steps });
        }
        // `{{ a }} and {{ b }}` begins and ends like one expression too; its inside is none.
        if let Ok(expression) = EXPRESSIONS.compile_expression_owned(inside.to_owned()) {
            known::check_expression(&EXPRESSIONS, inside)?;
            return Ok(Node::Expression(expression));
        }
    }
    known::check_text(&EXPRESSIONS, text)?;
    let name = texts.templates().count().to_string();
    texts.add_template_owned(name.clone(), text.to_owned()).map_err(|e| describe(&e))?;
    Ok(Node::Text(name))
}

fn evaluate(expression: &Expression<'static, 'static>, scope: &Scope) -> Result<Option<Value>, TemplateError> {
    match expression.eval(value::context(scope, Numbers::Exact)) {
        Ok(result) if result.is_undefined() => Ok(None),
        Ok(result) => value::to_json(&result).map(Some).map_err(|e| describe(&e)),
        Err(error) if error.kind() == ErrorKind::UndefinedError => Ok(None),
        Err(error) => Err(describe(&error)),
    }
}

/// The environment of all whole expressions and rules.
static EXPRESSIONS: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    // It prints everything in scope, secrets too.
    environment.remove_global("debug");
    environment.add_filter("tojson", value::tojson);
    environment.add_filter("float", value::float);
    environment.add_filter("urlencode", value::urlencode);
    environment.set_formatter(|out, _, value| {
        let text = value::to_text(value)?;
        out.write_str(&text).map_err(Error::from)
    });
    // The last line break of a prompt belongs to the prompt.
    if let Ok(syntax) = minijinja::syntax::SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment
}

/// What a template engine's error says to people. Details of errors about values are dropped: they
/// may quote the values.
fn describe(error: &Error) -> TemplateError {
    let mut message = match error.kind() {
        ErrorKind::SyntaxError => "not a template".to_owned(),
        ErrorKind::OutOfFuel => return TemplateError::new("the template does more work than is allowed"),
        kind => kind.to_string(),
    };
    let about_the_source = matches!(
        error.kind(),
        ErrorKind::SyntaxError | ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction
    );
    let detail = error.detail().filter(|detail| about_the_source || detail.starts_with(value::OURS));
    if let Some(detail) = detail {
        let _ = write!(message, ": {}", detail.trim_start_matches(value::OURS));
    }
    if let Some(line) = error.line().filter(|line| *line > 1) {
        let _ = write!(message, " (line {line} of the text)");
    }
    TemplateError::new(message)
}

/// The names that are not the template engine's own, such as `range`.
fn own_names(names: impl IntoIterator<Item = String>) -> impl Iterator<Item = String> {
    names.into_iter().filter(|name| !EXPRESSIONS.globals().any(|(global, _)| global == name))
}

/// Says which of the names that a template reads is undefined.
fn undefined(names: impl IntoIterator<Item = String>, scope: &Scope) -> TemplateError {
    let missing = names.into_iter().collect::<BTreeSet<_>>().into_iter().find(|name| {
        value::parse_path(name)
            .is_some_and(|(root, steps)| scope.get(&root).and_then(|value| value::walk(value, &steps)).is_none())
    });
    match missing {
        Some(name) => TemplateError::new(format!("`{name}` is undefined")),
        None => TemplateError::new("something in it is undefined"),
    }
}
