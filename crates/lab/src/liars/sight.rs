//! How a verification looks at a provider, and what it saw.

use std::path::Path;
use std::sync::Arc;

use onejob::config::Config;
use onejob::contract::report::{self, Report};
use onejob::engine::{AskedBy, Engine, Verified};

use super::lie::Lie;
use super::server::{Liar, MODEL, STOP, WINDOW};
use super::template::{CARELESS_TEMPLATE, TEMPLATE};
use super::tokens::{BOS, EOS, Tokens};

/// What is known of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Its tokenizer and chat template are files here.
    Files,
    /// It has pages that tokenize and render.
    Pages,
    /// Nothing.
    Closed,
}

impl View {
    /// All.
    pub const ALL: [View; 3] = [View::Files, View::Pages, View::Closed];

    /// The provider of that view in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            View::Files => "files",
            View::Pages => "pages",
            View::Closed => "closed",
        }
    }
}

const CONFIG: &str = r###"
[server]
store = "sqlite:onejob.db"

[providers.files]
preset = "openai-chat"
model = "{model}"
base_url = "{url}/v1"
request.body.stop = ["{stop}"]
[providers.files.tokenizer]
file = "tokenizer.json"
chat_template = "template.jinja"
bos_token = "{bos}"
eos_token = "{eos}"
context_window = {window}

[providers.pages]
preset = "openai-chat"
model = "{model}"
base_url = "{url}/v1"
request.body.stop = ["{stop}"]
[providers.pages.tokenizer]
endpoint = "{url}/tokenize"
bos_token = "{bos}"
eos_token = "{eos}"
context_window = {window}

[providers.closed]
preset = "openai-chat"
model = "{model}"
base_url = "{url}/v1"
request.body.stop = ["{stop}"]

[tasks.capital]
providers = ["files", "pages", "closed"]
attempt_timeout = "{timeout}"

[tasks.capital.chat]
system = "You know capitals and answer in JSON alone, as in city country residents landmarks"
user = "Notes: {{ input.notes }}\nWhat is the capital of {{ input.country }}?"
temperature = 0.0
max_output_tokens = 100

[tasks.capital.output]
schema = "capital.json"
strict = true
rules = ["output.country == input.country", "output.residents > 1000"]

[tasks.capital.contract]
cases = "cases.toml"
repeat = 3
modes = ["text", "json_object", "json_schema"]
probe_tokens = 1600
"###;

const SCHEMA: &str = r#"{
  "type": "object",
  "required": ["city", "country", "residents"],
  "properties": {
    "city": {"type": "string", "minLength": 1, "maxLength": 40},
    "country": {"type": "string"},
    "residents": {"type": "integer", "minimum": 1},
    "landmarks": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}
  }
}"#;

const CASES: &str = r#"
[[case]]
name = "short"
input = { country = "Kenya", notes = "none" }
expect = ["output.city == 'Nairobi'"]

[[case]]
name = "not ASCII"
input = { country = "São Tomé", notes = "none" }

[[case]]
name = "long"
input = { country = "Japan", notes = "{notes}" }
"#;

/// Notes of a length that any window should have.
const NOTES: &str = "The cat sat on the mat and the dog lay by the door. ";

/// Slow machines are no liars; whoever never answers need not be waited for.
fn timeout(lie: Lie) -> &'static str {
    if lie == Lie::TooSlow { "200ms" } else { "20s" }
}

/// Writes what a configuration over this provider needs into a folder, and reads it.
fn config(folder: &Path, liar: &Liar, lie: Lie) -> Result<Config, String> {
    let template = if lie == Lie::Injectable { CARELESS_TEMPLATE } else { TEMPLATE };
    let files = [
        ("tokenizer.json", Tokens::new().to_json().to_string()),
        ("template.jinja", template.to_owned()),
        ("capital.json", SCHEMA.to_owned()),
        ("cases.toml", CASES.replace("{notes}", &NOTES.repeat(8))),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    let filled = [
        ("{model}", MODEL),
        ("{url}", &liar.url),
        ("{stop}", &STOP.replace('\n', "\\n")),
        ("{bos}", BOS),
        ("{eos}", EOS),
        ("{window}", &WINDOW.to_string()),
        ("{timeout}", timeout(lie)),
    ];
    let text = filled.iter().fold(CONFIG.to_owned(), |text, (name, value)| text.replace(name, value));
    Config::parse(&text, "onejob.toml", folder, &|_| None).map_err(|error| error.to_string())
}

/// What the verification of a provider that lies like this says, in each view; and whether it was certified.
///
/// # Errors
///
/// It could not be run.
pub async fn look(lie: Lie) -> Result<Vec<(View, Report, bool)>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let liar = Liar::start(lie).await.map_err(|error| error.to_string())?;
    let engine = Engine::open(Arc::new(config(folder.path(), &liar, lie)?)).await.map_err(|error| error.to_string())?;
    let mut seen = Vec::new();
    for view in View::ALL {
        match engine.verify("capital", view.name(), AskedBy::Request).await.map_err(|error| error.to_string())? {
            Verified::Done(report, certificate) => seen.push((view, *report, certificate.is_some())),
            other => return Err(format!("not verified: {other:?}")),
        }
    }
    Ok(seen)
}

/// The name of a row: check, part, and the mode where one was named.
pub fn label(row: &report::Row) -> String {
    let part = row.part.map_or_else(String::new, |part| format!(": {part}"));
    let mode = row.mode.map_or_else(String::new, |mode| format!(" ({})", mode.as_str()));
    format!("{}{part}{mode}", row.check.as_str())
}
