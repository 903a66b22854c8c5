//! What a certificate stands on: what changes a digest, and what does not.

use super::*;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("contracts/summarize.toml", CASES);
    folder
}

/// The digests of the task and of the providers main and poster.
fn digests(folder: &Folder, text: &str) -> [onejob_core::Digest; 3] {
    let config = folder.parse(text).unwrap_or_else(|errors| panic!("{errors}"));
    [config.tasks["summarize"].digest, config.providers["main"].digest, config.providers["poster"].digest]
}

/// Which of the three change with the text.
fn changed(folder: &Folder, from: &str, to: &str) -> [bool; 3] {
    assert!(FULL.contains(from), "{from}");
    let (before, after) = (digests(folder, FULL), digests(folder, &FULL.replace(from, to)));
    std::array::from_fn(|at| before[at] != after[at])
}

#[test]
fn every_part_of_the_prompt_and_of_the_contract_counts() {
    let folder = folder();
    for (from, to) in [
        ("You write summaries as JSON.", "You write summaries as  JSON."),
        ("user   = \"Summarize: ", "user   = \"Sum up: "),
        ("temperature = 0.0", "temperature = 0.1"),
        ("max_output_tokens = 800", "max_output_tokens = 801"),
        ("strict = true", "strict = false"),
        ("output.bullets | length <= 5", "output.bullets | length <= 6"),
        ("repeat    = 5", "repeat    = 6"),
        ("token_tolerance = 0.2", "token_tolerance = 0.3"),
        ("probe_tokens = 3000", "probe_tokens = 3001"),
        ("modes = [\"text\", \"json_schema\"]", "modes = [\"text\"]"),
    ] {
        assert_eq!(changed(&folder, from, to), [true, false, false], "{from}");
    }
}

#[test]
fn every_part_of_a_definition_that_can_change_an_answer_counts() {
    let folder = folder();
    for (from, to, which) in [
        ("model   = \"gpt-4.1-mini\"", "model   = \"gpt-4.1\"", [false, true, false]),
        ("model   = \"gpt-4.1-mini\"", "model   = \"gpt-4.1-mini\"\nbase_url = \"http://x\"", [false, true, false]),
        ("size = \"{{ input.size }}\"", "size = 3", [false, false, true]),
        ("output = \"{{ body.image_url }}\"\nmodel", "output = \"{{ body.url }}\"\nmodel", [false, false, true]),
        ("context_window = 128000", "context_window = 8000", [false, false, true]),
    ] {
        assert_eq!(changed(&folder, from, to), which, "{from}");
    }
}

#[test]
fn limits_secrets_order_and_white_space_do_not_count() {
    let folder = folder();
    for (from, to) in [
        ("concurrency = 8", "concurrency = 9"),
        ("connect_timeout = \"2s\"", "connect_timeout = \"3s\""),
        ("max_answer_bytes = 1000000", "max_answer_bytes = 1000001"),
        ("api_key = { env = \"OPENAI_API_KEY\" }", "api_key = { env = \"POSTER_API_KEY\" }"),
        ("refused = [503]", "refused = [503, 502]"),
        ("attempt_timeout = \"30s\"", "attempt_timeout = \"31s\""),
        ("valid_for = \"7d\"", "valid_for = \"8d\""),
        ("verify_every = \"1d\"", "verify_every = \"2d\""),
        ("strict = true\nrules ", "\n# a comment\nrules"),
        ("modes = [\"text\", \"json_schema\"]", "modes = [ \"json_schema\", \"text\" ]"),
        ("[providers.poster.request]\nmethod  = \"POST\"\n", "[providers.poster.request]\n  method = 'POST'\n"),
    ] {
        let to = if to.starts_with("\n# a comment") { "strict = true\n# a comment\nrules " } else { to };
        assert_eq!(changed(&folder, from, to), [false; 3], "{from}");
    }
}

#[test]
fn the_files_count_by_what_they_say() {
    let folder = folder();
    let before = digests(&folder, FULL);
    folder.write("schemas/summary.json", r#"{ "properties": {"bullets": {"type":  "array"}}, "type": "object" }"#);
    folder.write("contracts/summarize.toml", &format!("# the same\n{CASES}"));
    assert_eq!(digests(&folder, FULL), before);
    for (file, text) in [
        ("schemas/summary.json", r#"{"type": "object", "properties": {"bullets": {}}}"#.to_owned()),
        ("contracts/summarize.toml", CASES.replace("length >= 1", "length >= 2")),
        ("contracts/summarize.toml", CASES.replace("text = \"…\"", "text = \"…!\"")),
        ("contracts/summarize.toml", CASES.replace("capital of France", "capital of Norway")),
    ] {
        let folder = self::folder();
        folder.write(file, &text);
        let after = digests(&folder, FULL);
        assert!(after[0] != before[0] && after[1..] == before[1..], "{file}: {text}");
    }
}

#[test]
fn the_bytes_of_a_template_count_for_its_provider() {
    let folder = folder();
    let before = digests(&folder, FULL);
    folder.write("tokenizers/poster.jinja", "{{ messages[0].content }}");
    let after = digests(&folder, FULL);
    assert!(after[2] != before[2] && after[..2] == before[..2]);
}

#[test]
fn a_task_at_a_provider_has_a_digest_of_its_own() {
    let config = folder().parse(FULL).unwrap();
    let (task, other) = (&config.tasks["summarize"], &config.tasks["poster"]);
    let (main, backup) = (&config.providers["main"], &config.providers["backup"]);
    let of = |task, provider| config.contract_digest(task, provider);
    assert_eq!(of(task, main), of(task, main));
    let all = [of(task, main), of(task, backup), of(other, main), of(other, backup)];
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}
