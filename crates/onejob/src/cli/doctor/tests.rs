//! What `onejob doctor` says of files, and how it ends.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::super::exit::Exit;
use super::super::screen::Screen;
use super::{DoctorArgs, doctor};
use crate::store::{SqliteOptions, SqliteStore};

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

const CONFIG: &str = "[server]\nstore = \"sqlite:jobs.db\"\n[providers.main]\nkind = \"simulated\"\n\
                      [tasks.plain]\nproviders = [\"main\"]\n";

/// Looks at a folder with this configuration; what differs from run to run is out of the way.
fn looked(folder: &Path, text: &str, json: bool) -> (Exit, String) {
    std::fs::write(folder.join("onejob.toml"), text).unwrap();
    let out = Buffer::default();
    let mut screen = Screen::of_writers(Box::new(out.clone()), Box::new(std::io::sink()));
    let exit = doctor(&DoctorArgs { config: folder.join("onejob.toml"), json }, &mut screen).unwrap();
    let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
    let text = text.replace(&format!("{}/", folder.display()), "").replace(&std::process::id().to_string(), "PID");
    if json {
        return (exit, text);
    }
    let plain = text.lines().map(|line| match line.find(" free on its disk") {
        Some(end) => {
            let start = line[..end].rfind("  ").map_or(0, |at| at + 2);
            format!("{}SPACE{}", &line[..start], &line[end..])
        }
        None => line.to_owned(),
    });
    (exit, plain.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_file_that_is_not_there_yet_is_no_finding() {
    let folder = tempfile::tempdir().unwrap();
    let (exit, out) = looked(folder.path(), CONFIG, false);
    assert_eq!(exit, Exit::Good, "{out}");
    assert!(!folder.path().join("jobs.db").exists(), "it only looks");
    insta::assert_snapshot!(out);
}

#[test]
fn a_file_in_use_is_read_as_far_as_that_disturbs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("jobs.db"), SqliteOptions::default()).unwrap();
    let (exit, out) = looked(folder.path(), CONFIG, false);
    assert_eq!(exit, Exit::Good, "{out}");
    insta::assert_snapshot!(out);
    drop(store);
}

#[test]
fn a_file_of_another_program_and_a_damaged_one_are_findings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE theirs (id)").unwrap();
    let (exit, out) = looked(folder.path(), CONFIG, true);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((exit, &document["ok"]), (Exit::JobNotDone, &Value::from(false)));
    let found = document["checks"].as_array().unwrap().iter().find(|check| check["state"] == "finding").unwrap();
    assert_eq!(found["check"], "file.contents");
    assert!(found["seen"].as_str().unwrap().contains("a database of another program"), "{found}");
    std::fs::write(&file, [7; 8192]).unwrap();
    assert_eq!(looked(folder.path(), CONFIG, false).0, Exit::JobNotDone);
}

#[test]
fn a_secret_that_is_missing_is_a_finding_and_the_rest_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{CONFIG}[providers.paid]\nkind = \"http\"\nrequest = {{ url = \"http://127.0.0.1:1/\" }}\n\
         secrets = {{ api_key = {{ env = \"ONEJOB_TEST_KEY_THAT_IS_NOT_SET\" }} }}\n"
    );
    let (exit, out) = looked(folder.path(), &text, false);
    assert_eq!(exit, Exit::JobNotDone);
    insta::assert_snapshot!(out);
}

#[test]
fn a_wrong_configuration_is_a_finding_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let (exit, out) = looked(folder.path(), "[server]\nlisten = 1\n", false);
    assert_eq!(exit, Exit::JobNotDone);
    assert!(out.contains("onejob.toml:2: server.listen"), "{out}");
}
