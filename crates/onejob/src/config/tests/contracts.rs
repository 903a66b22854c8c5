//! `[tasks.*.contract]` and its file of cases.

use std::time::Duration;

use super::*;
use crate::config::{Contract, OutputMode, defaults};

/// A task of a chat provider with an input schema, an output schema and a contract.
fn text(contract: &str) -> String {
    format!(
        "[providers.main]\npreset = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"http://x\"\n[tasks.t]\nproviders = \
         [\"main\"]\ninput_schema = \"schemas/summarize.input.json\"\nchat = {{ user = \"x\" }}\noutput = {{ schema = \
         \"schemas/summary.json\" }}\ncontract = {contract}\n"
    )
}

#[test]
fn a_contract_is_read_whole() {
    let config = Folder::new().parse(FULL).unwrap();
    let contract = config.tasks["summarize"].contract.as_ref().unwrap();
    assert_eq!((&*contract.cases[0].name, contract.cases[0].expect.len()), ("short note", 1));
    assert_eq!((&*contract.canaries[0].name, contract.canaries[0].expect.len()), ("one word", 1));
    assert_eq!((contract.repeat, contract.probe_tokens), (5, 3000));
    assert_eq!(contract.verify_every, Some(Duration::from_secs(24 * 3600)));
    assert_eq!(contract.modes, [OutputMode::Text, OutputMode::JsonSchema]);
    assert!(config.tasks["poster"].contract.is_none());
}

#[test]
fn a_contract_that_says_little_has_the_documented_defaults() {
    let folder = Folder::new();
    let config = folder.parse(&text("{ cases = \"contracts/summarize.toml\" }")).unwrap();
    let Some(Contract { repeat, valid_for, verify_every, token_tolerance, probe_tokens, modes, .. }) =
        &config.tasks["t"].contract
    else {
        panic!("no contract");
    };
    assert_eq!((*repeat, *valid_for, *verify_every), (defaults::REPEAT, defaults::VALID_FOR, None));
    assert_eq!((*token_tolerance, *probe_tokens), (defaults::TOKEN_TOLERANCE, defaults::PROBE_TOKENS));
    assert!(modes.is_empty());
}

#[test]
fn what_is_wrong_with_cases_is_said_in_their_file() {
    let all = [
        "case = []\n",
        "[[case]]\nname = \"\"\ninput = { text = \"a\" }\n",
        "[[case]]\nname = \"a\"\ninput = { text = \"a\" }\n[[case]]\nname = \"a\"\ninput = { text = \"b\" }\n",
        "[[case]]\nname = \"a\"\ninput = { tekst = \"a\" }\n[[case]]\nname = \"b\"\ninput = 7\n",
        "[[case]]\nname = \"a\"\ninput = { text = \"a\" }\nexpect = [\"output.x <\", \"outptu.x\"]\n",
        "[[case]]\nname = \"a\"\ninput = { text = \"a\" }\n[[canary]]\n[[canary]]\nname = \"a\"\nsystem = \"{{ x\"\nuser = \"{{ output }}\"\nexpect = []\n",
    ];
    let folder = Folder::new();
    let said = all.map(|cases| {
        folder.write("contracts/c.toml", cases);
        format!("{cases}\n{}", folder.errors(&text("{ cases = \"contracts/c.toml\" }")))
    });
    insta::assert_snapshot!(said.join("\n---\n"));
}

#[test]
fn what_is_wrong_with_a_contract_is_said_with_its_key() {
    let said = [
        "{ verify_every = \"1h\", valid_for = \"1h\" }",
        "{ token_tolerance = 2, probe_tokens = -1, modes = [\"json\", \"text\", \"text\"] }",
    ]
    .map(|contract| Folder::new().errors(&text(contract)));
    insta::assert_snapshot!(said.join("\n---\n"));
    let no_schema = text("{ cases = \"contracts/summarize.toml\", modes = [\"json_schema\"] }")
        .replace("output = { schema = \"schemas/summary.json\" }", "");
    assert!(Folder::new().errors(&no_schema).contains("needs output.schema"));
}

#[test]
fn more_runs_than_anybody_waits_for_are_an_error() {
    let folder = Folder::new();
    let cases: String = (0..11).map(|n| format!("[[case]]\nname = \"{n}\"\ninput = {{ text = \"a\" }}\n")).collect();
    folder.write("contracts/c.toml", &cases);
    let contract = |repeat: u32| text(&format!("{{ cases = \"contracts/c.toml\", repeat = {repeat} }}"));
    assert!(folder.parse(&contract(909)).is_ok());
    let errors = folder.errors(&contract(910));
    assert!(errors.contains("11 cases, 910 times each, are 10010 calls; at most 10000 are made"), "{errors}");
}
