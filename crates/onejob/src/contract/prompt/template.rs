//! Chat templates as model files carry them: Jinja2 as Hugging Face runs it, by minijinja with the methods
//! that Python's strings, lists and dictionaries have.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value as Seen};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, context};
use serde_json::Value;

/// The one template of an environment.
const NAME: &str = "chat_template";

/// A chat template, compiled.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
}

/// One message of a chat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// `system` or `user`.
    pub role: &'static str,
    /// Its text.
    pub content: String,
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are what it sees as `bos_token` and `eos_token`.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with it.
    pub fn compile(text: &str, bos: Option<&str>, eos: Option<&str>) -> Result<ChatTemplate, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| said(&error))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        // It marks, for training only, which part a model wrote.
        let text = text.replace("{% generation %}", "").replace("{% endgeneration %}", "");
        let text = text.replace("{%- generation %}", "").replace("{%- endgeneration %}", "");
        environment.add_template_owned(NAME, text).map_err(|error| format!("is no chat template: {}", said(&error)))?;
        Ok(ChatTemplate { environment, bos: bos.map(str::to_owned), eos: eos.map(str::to_owned) })
    }

    /// The prompt of a chat, up to where the model begins to write.
    ///
    /// # Errors
    ///
    /// A sentence: what the template itself refuses, or what it cannot do.
    pub fn render(&self, messages: &[Message]) -> Result<String, String> {
        let messages: Vec<Seen> = messages
            .iter()
            .map(|message| context! { role => message.role, content => message.content.as_str() })
            .collect();
        let template = self.environment.get_template(NAME).map_err(|error| said(&error))?;
        let context = context! {
            messages => messages,
            add_generation_prompt => true,
            bos_token => self.bos.as_deref().unwrap_or_default(),
            eos_token => self.eos.as_deref().unwrap_or_default(),
        };
        template.render(context).map_err(|error| said(&error))
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChatTemplate")
    }
}

fn said(error: &Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line} of the template)"),
        None => detail,
    }
}

/// How templates refuse what their model cannot take.
fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The present in UTC, as Python's `strftime` writes it.
fn strftime_now(format: String) -> Result<String, Error> {
    let now = Timestamp::now().to_zoned_datetime(TimeZone::UTC);
    jiff::fmt::strtime::format(&format, &now)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

/// JSON as Python's `json.dumps` writes it: a space after each comma and colon, or indented.
fn tojson(value: &Seen, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    // Others, such as `ensure_ascii`, change nothing that counts here.
    let _ = kwargs.get::<Option<bool>>("ensure_ascii")?;
    let json = crate::template::to_json(value)?;
    let mut out = String::new();
    match indent {
        Some(_) => return Ok(format!("{json:#}")),
        None => write_json(&json, &mut out),
    }
    Ok(out)
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => out.push_str(&value.to_string()),
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_json(element, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, member)) in members.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push_str(": ");
                write_json(member, out);
            }
            out.push('}');
        }
    }
}
