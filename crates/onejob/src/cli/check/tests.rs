//! What `onejob check` says and how it ends.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::super::exit::Exit;
use super::super::screen::Screen;
use super::{CheckArgs, check};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Checks a file of this text; gives the exit, standard output and standard error, with the folder's
/// own name out of the way.
fn checked(text: &str, json: bool) -> (Exit, String, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("onejob.toml"), text).unwrap();
    std::fs::write(dir.path().join("ca.pem"), "no certificate").unwrap();
    std::fs::write(dir.path().join("key"), "sk-never-shown").unwrap();
    let (out, err) = (Buffer::default(), Buffer::default());
    let mut screen = Screen::of_writers(Box::new(out.clone()), Box::new(err.clone()));
    let args = CheckArgs { config: dir.path().join("onejob.toml"), json };
    let exit = check(&args, &mut screen).unwrap();
    let plain = |buffer: Buffer| buffer.text().replace(&format!("{}/", dir.path().display()), "");
    (exit, plain(out), plain(err))
}

const GOOD: &str = r#"
[providers.main]
preset = "openai-chat"
model = "gpt-4.1-mini"
api_key = { file = "key" }
[providers.demo]
kind = "simulated"
concurrency = 2
[providers.team]
kind = "worker"
[tasks.summarize]
providers = ["main", "demo"]
on_unknown = { abandon_after = "15m" }
chat = { user = "{{ input.text }}" }
output = { rules = ["output"] }
[tasks.resize]
providers = ["team"]
linger = "0s"
"#;

#[test]
fn a_good_file_is_shown_with_its_remarks_and_without_its_secrets() {
    let (exit, out, err) = checked(GOOD, false);
    assert_eq!((exit, err.as_str()), (Exit::Good, ""));
    assert!(!out.contains("sk-never-shown"));
    insta::assert_snapshot!(out);
}

#[test]
fn a_bad_file_ends_with_1_and_every_error_on_its_own_line() {
    let (exit, out, err) = checked("[server]\nlisten = 1\n\"\\u001b[2J\" = 2\n", false);
    assert_eq!((exit, out.as_str()), (Exit::JobNotDone, ""));
    insta::assert_snapshot!(err);
}

#[test]
fn programs_get_one_document_in_either_case() {
    let (exit, out, err) = checked(GOOD, true);
    assert_eq!((exit, err.as_str()), (Exit::Good, ""));
    assert!(!out.contains("sk-never-shown"));
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["ok"], true);
    assert_eq!(document["providers"][1]["secrets"][0], "api_key");
    assert_eq!(document["tasks"][1]["abandon_after"], "15m");
    let kinds: Vec<&str> =
        document["remarks"].as_array().unwrap().iter().map(|remark| remark["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["not_supported_yet", "unknown_ends_by", "no_effect", "unknown_ends_by"]);

    let (exit, out, err) = checked("[server]\nlisten = 1\n", true);
    assert_eq!((exit, err.as_str()), (Exit::JobNotDone, ""));
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["ok"], false);
    assert_eq!(document["errors"][0]["line"], 2);
    assert_eq!(document["errors"][0]["key"], "server.listen");
    assert_eq!(document["errors"][0]["file"], "onejob.toml");
}

#[test]
fn what_serve_could_not_open_is_an_error() {
    let text = "[providers.a]\nkind = \"http\"\nca_file = \"ca.pem\"\nrequest = { url = \"https://x/\" }\n";
    let (exit, out, err) = checked(text, false);
    assert_eq!((exit, out.as_str()), (Exit::JobNotDone, ""));
    assert!(err.starts_with("onejob.toml: providers.a: ca_file ca.pem: "), "{err}");
}

#[test]
fn a_file_that_is_not_there_ends_with_1() {
    let (out, err) = (Buffer::default(), Buffer::default());
    let mut screen = Screen::of_writers(Box::new(out), Box::new(err.clone()));
    let args = CheckArgs { config: Path::new("no/such/onejob.toml").to_owned(), json: false };
    assert_eq!(check(&args, &mut screen).unwrap(), Exit::JobNotDone);
    assert!(err.text().starts_with("no/such/onejob.toml: cannot read it: no such file\n"));
}
