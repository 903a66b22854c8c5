//! What loads, what is refused and in which words, and that nothing is ignored.

mod loaded;
mod refused;
mod ignored;
mod mutated;
mod page;
mod digests;
mod contracts;

use std::collections::BTreeMap;
use std::path::Path;

use super::{Config, ConfigErrors};

/// Every key that the loader knows, most of them in the words of the design.
const FULL: &str = include_str!("tests/full.toml");

/// What no error and no `Debug` may ever show.
const SECRET: &str = "sk-never-shown";

/// A folder with every file that the configurations here name.
struct Folder {
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder {
            dir,
            env: ["OPENAI_API_KEY", "POSTER_API_KEY", "POSTER_WEBHOOK_SECRET"]
                .map(|name| (name.to_owned(), SECRET.to_owned()))
                .into(),
        };
        folder.write("secrets/anthropic", &format!("{SECRET}\n"));
        folder.write("schemas/summarize.input.json", r#"{"type": "object", "required": ["text"]}"#);
        folder.write("schemas/summary.json", r#"{"type": "object", "properties": {"bullets": {"type": "array"}}}"#);
        folder.write("contracts/summarize.toml", CASES);
        folder.write("tokenizers/poster.json", &crate::contract::prompt_tests::tokenizer_json());
        folder.write("tokenizers/poster.jinja", crate::contract::prompt_tests::TEMPLATE);
        folder.write("certs/ca.pem", "");
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn parse(&self, text: &str) -> Result<Config, ConfigErrors> {
        Config::parse(text, "onejob.toml", self.path(), &|name| self.env.get(name).cloned())
    }

    /// The errors as people read them, with the folder's own name out of the way.
    fn errors(&self, text: &str) -> String {
        let errors = self.parse(text).expect_err("a configuration with errors").to_string();
        errors.replace(&format!("{}/", self.path().display()), "")
    }
}

const CASES: &str = "\
[[case]]
name = \"short note\"
input = { text = \"…\" }
expect = [\"output.bullets | length >= 1\"]
[[canary]]
name = \"one word\"
system = \"Answer with {{ input.word }}.\"
user = \"What is the capital of France?\"
input = { word = \"saffron\" }
expect = [\"input.word in output\"]
";
