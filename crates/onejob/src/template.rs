//! Templates in definitions: minijinja, with JSON values that keep their types and exact numbers.

use serde_json::Value;

/// A value with templates in its strings, compiled. A string that is one whole expression
/// (`"{{ input.size }}"`) renders to the expression's value with its type; an expression that is
/// undefined renders to nothing: the member or element is left out, at the top it is an error.
#[derive(Debug)]
pub struct Template {
    _private: (),
}

/// An expression over JSON values: `output.bullets | length <= 5`.
#[derive(Debug)]
pub struct Rule {
    _private: (),
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

/// What templates see: named values, each a JSON value.
#[derive(Default)]
pub struct Scope {
    values: Vec<(&'static str, Value)>,
}

impl Scope {
    /// An empty scope.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// The same scope with one more name.
    pub fn with(mut self, name: &'static str, value: Value) -> Scope {
        self.values.push((name, value));
        self
    }
}

impl Template {
    /// Compiles every string of `value`.
    ///
    /// # Errors
    ///
    /// The first string that is no template.
    pub fn compile(value: &Value) -> Result<Template, TemplateError> {
        let _ = value;
        todo!()
    }

    /// Renders to a JSON value; `None` if the whole is one undefined expression.
    ///
    /// # Errors
    ///
    /// A template that fails at run time.
    pub fn render(&self, scope: &Scope) -> Result<Option<Value>, TemplateError> {
        let _ = scope;
        todo!()
    }
}

impl Rule {
    /// Compiles one expression.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn compile(text: &str) -> Result<Rule, TemplateError> {
        let _ = text;
        todo!()
    }

    /// Whether it holds.
    ///
    /// # Errors
    ///
    /// If it cannot be evaluated.
    pub fn holds(&self, scope: &Scope) -> Result<bool, TemplateError> {
        let _ = scope;
        todo!()
    }
}
