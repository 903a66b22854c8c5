//! Nothing is ignored: a key that nobody reads is an error, wherever it stands.

use super::*;

/// Tables whose members the file names as it likes.
fn is_open(header: &str) -> bool {
    header.ends_with(".headers")
}

#[test]
fn an_unknown_key_in_any_table_is_one_error_on_its_line() {
    let folder = Folder::new();
    let lines: Vec<&str> = FULL.lines().collect();
    let headers =
        lines.iter().enumerate().filter(|(_, line)| line.starts_with('[') && !is_open(line.trim_matches(['[', ']'])));
    let mut tried = 0;
    for (at, header) in headers {
        let mut text = lines.clone();
        text.insert(at + 1, "zzz = 1");
        let errors = folder.parse(&text.join("\n")).expect_err(header);
        let section = header.trim_matches(['[', ']']);
        assert_eq!(errors.0.len(), 1, "{errors}");
        assert_eq!(errors.0[0].key, format!("{section}.zzz"));
        assert_eq!(errors.0[0].line, at + 2);
        assert!(errors.0[0].message.starts_with("unknown key; "), "{errors}");
        tried += 1;
    }
    assert!(tried > 15, "{tried}");
}

#[test]
fn an_unknown_key_in_any_inline_table_is_one_error_on_its_line() {
    let folder = Folder::new();
    for (inline, key) in [
        ("api_key = { env = \"OPENAI_API_KEY\"", "providers.main.api_key.zzz"),
        ("api_key = { file = \"secrets/anthropic\"", "providers.backup.api_key.zzz"),
        ("secrets = { api_key = { env = \"POSTER_API_KEY\"", "providers.poster.secrets.api_key.zzz"),
        ("secret    = { env = \"POSTER_WEBHOOK_SECRET\"", "providers.poster.callback.secret.zzz"),
        ("on_unknown      = { abandon_after = \"15m\"", "tasks.summarize.on_unknown.zzz"),
        ("usage  = { input_tokens = \"{{ body.usage.in }}\"", "providers.poster.response.usage.zzz"),
    ] {
        assert_eq!(FULL.matches(inline).count(), 1, "{inline}");
        let errors = folder.parse(&FULL.replace(inline, &format!("{inline}, zzz = 1"))).expect_err(inline);
        let line = FULL[..FULL.find(inline).unwrap()].lines().count() + 1;
        let found: Vec<_> = errors.0.iter().map(|error| (error.key.as_str(), error.line)).collect();
        assert_eq!(found, [(key, line)], "{errors}");
    }
}

#[test]
fn an_unknown_key_in_a_file_of_cases_is_an_error_in_that_file() {
    let folder = Folder::new();
    folder.write("contracts/summarize.toml", &format!("{CASES}zzz = 1\n"));
    let errors = folder.errors(FULL);
    assert!(errors.starts_with("contracts/summarize.toml:11: canary[0].zzz: unknown key; "), "{errors}");
}

#[test]
fn every_value_of_another_type_is_an_error() {
    let folder = Folder::new();
    let lines: Vec<&str> = FULL.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((key, _)) = line.split_once('=').filter(|_| !line.starts_with('[')) else { continue };
        // Bodies and behaviours are whatever the provider wants.
        if ["body", "behaviour"].contains(&key.trim()) {
            continue;
        }
        let wrong = format!("{key}= 1979-05-27");
        let mut text = lines.clone();
        text[at] = &wrong;
        let errors = folder.parse(&text.join("\n")).expect_err(line);
        assert!(errors.0.iter().any(|error| error.line == at + 1), "{wrong}: {errors}");
    }
}
