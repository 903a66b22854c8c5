//! Files that were damaged at random: always a configuration or errors, never a panic and never a secret.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// One damage to a text.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize, usize),
    Insert(usize, String),
    MoveLine(usize, usize),
    CopyLine(usize, usize),
    Value(usize, &'static str),
}

const VALUES: &[&str] = &[
    "7",
    "-1",
    "0",
    "9223372036854775808",
    "1e400",
    "nan",
    "true",
    "\"\"",
    "\"x\"",
    "\"{{ \"",
    "\"{{ input.x }}\"",
    "\"{% for x in input %}{{ x }}{% endfor %}\"",
    "\"-5s\"",
    "\"99999999999999999999d\"",
    "[]",
    "[1, \"a\"]",
    "{}",
    "{ env = \"OPENAI_API_KEY\" }",
    "{ file = \".\" }",
    "1979-05-27",
    "[[\"x\"], {}]",
    "\"http://\"",
    "\"sqlite:\"",
    "\"\\u0000\"",
];

fn damage() -> impl Strategy<Value = Damage> {
    let at = 0..10_000_usize;
    prop_oneof![
        (at.clone(), 0..40_usize).prop_map(|(at, length)| Damage::Cut(at, length)),
        (at.clone(), "[\\[\\]{}=.\"'#a-z0-9_\\n\\\\ é]{0,8}").prop_map(|(at, text)| Damage::Insert(at, text)),
        (at.clone(), at.clone()).prop_map(|(from, to)| Damage::MoveLine(from, to)),
        (at.clone(), at.clone()).prop_map(|(from, to)| Damage::CopyLine(from, to)),
        (at, prop::sample::select(VALUES)).prop_map(|(at, value)| Damage::Value(at, value)),
    ]
}

fn damaged(text: &str, damage: &Damage) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if chars.is_empty() || lines.is_empty() {
        return text.to_owned();
    }
    match damage {
        Damage::Cut(at, length) => {
            let at = at % chars.len();
            chars.drain(at..(at + length).min(chars.len()));
            return chars.into_iter().collect();
        }
        Damage::Insert(at, inserted) => {
            let at = at % chars.len();
            chars.splice(at..at, inserted.chars());
            return chars.into_iter().collect();
        }
        Damage::MoveLine(from, to) => {
            let line = lines.remove(from % lines.len());
            let to = to % (lines.len() + 1);
            lines.insert(to, line);
        }
        Damage::CopyLine(from, to) => {
            let line = lines[from % lines.len()].clone();
            let to = to % (lines.len() + 1);
            lines.insert(to, line);
        }
        Damage::Value(at, value) => {
            let at = at % lines.len();
            if let Some((key, _)) = lines[at].clone().split_once('=') {
                lines[at] = format!("{key}= {value}");
            }
        }
    }
    lines.join("\n")
}

/// Random cases; a failure prints the damage that made it.
fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })
}

#[test]
fn a_damaged_file_is_a_configuration_or_a_list_of_errors() {
    let folder = Folder::new();
    let outcome = runner().run(&prop::collection::vec(damage(), 1..6), |damages| {
        let text = damages.iter().fold(FULL.to_owned(), |text, one| damaged(&text, one));
        match folder.parse(&text) {
            Ok(config) => {
                let shown = format!("{config:?}");
                prop_assert!(!shown.contains(SECRET));
            }
            Err(errors) => {
                prop_assert!(!errors.0.is_empty(), "refused without an error:\n{text}");
                let last = text.lines().count() + 1;
                for error in &errors.0 {
                    prop_assert!((1..=last).contains(&error.line), "{error}");
                    prop_assert!(!error.to_string().contains(SECRET));
                    prop_assert!(!error.message.contains('\n'), "{error}");
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn any_text_is_a_configuration_or_a_list_of_errors() {
    let outcome = runner().run(&"\\PC{0,200}", |text| {
        if let Err(errors) = Config::from_text(&text) {
            prop_assert!(!errors.0.is_empty());
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let brackets = format!("[server]\nlisten = {}", "[".repeat(20_000));
    let dots = format!("[server]\n{}a = 1", "a.".repeat(20_000));
    let body = format!("[providers.p]\nkind = \"simulated\"\nbehaviour.{}a = \"{{{{ input }}}}\"", "a.".repeat(20_000));
    for text in [brackets, dots, body] {
        assert!(!Config::from_text(&text).unwrap_err().0.is_empty());
    }
}
