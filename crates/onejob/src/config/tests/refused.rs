//! Bad configurations and the exact words about each. The snapshots are the table.

use super::*;

/// Each text with its line numbers, then what is said about it.
fn table(folder: &Folder, cases: &[&str]) -> String {
    let mut table = String::new();
    for text in cases {
        let text = text.trim_start_matches('\n');
        for (at, line) in text.lines().enumerate() {
            table.push_str(&format!("{:>2} | {line}\n", at + 1));
        }
        for line in folder.errors(text).lines() {
            table.push_str(&format!("  => {line}\n"));
        }
        table.push('\n');
    }
    table
}

fn snapshot(cases: &[&str]) -> String {
    let mut folder = Folder::new();
    folder.env.insert("EMPTY".to_owned(), String::new());
    folder.env.insert("BROKEN".to_owned(), format!("{SECRET}\nX-Injected: 1"));
    folder.write("secrets/empty", "\n");
    folder.write("schemas/torn.json", "{\"type\": ");
    folder.write("schemas/twice.json", "{\"type\": \"object\", \"type\": \"array\"}");
    folder.write("schemas/wrong.json", "{\"type\": \"oject\"}");
    folder.write("contracts/none.toml", "");
    folder.write("contracts/torn.toml", "[[case]\n");
    folder.write("contracts/wrong.toml", "[[case]]\nname = \"a\"\nexpect = [\"outptu.x\"]\n");
    table(&folder, cases)
}

#[test]
fn syntax() {
    insta::assert_snapshot!(snapshot(&[
        "[server\n",
        "[server]\nlisten = 127.0.0.1:4545\nstore = 'x\n",
        "[server]\nmax_wait = \"5s\"\nmax_wait = \"6s\"\n",
        "[server]\n[server]\n",
    ]));
}

#[test]
fn places_that_do_not_exist() {
    insta::assert_snapshot!(snapshot(&[
        "servers = 1\nserver = 2\nproviders = 3\ntasks = []\n",
        "[server]\nlisten_on = \"127.0.0.1:1\"\nlitsen = \"127.0.0.1:1\"\n",
        "[providers.\"Main One\"]\nkind = \"simulated\"\n[tasks.Summarize]\nproviders = [\"Main One\"]\n",
        "[providers.a]\nkind = \"simulated\"\nrequest = { url = \"http://x/\" }\n",
        "[providers.a]\nkind = \"worker\"\nbehaviour = {}\n",
    ]));
}

#[test]
fn server() {
    insta::assert_snapshot!(snapshot(&[
        "[server]\nlisten = \"0.0.0.0:4545\"\n",
        "[server]\nlisten = \"localhost:4545\"\n",
        "[server]\nlisten = 4545\n",
        "[server]\nstore = \"postgres://user:hunter2@host/\"\n",
        "[server]\nstore = \"onejob.db\"\n",
        "[server]\nstore = \"sqlite:\"\n",
        "[server]\nstore = \"sqlite://onejob.db\"\n",
        "[server]\nstore = \"sqlite::memory:\"\n",
        "[server]\npublic_url = \"ftp://example.com\"\n",
        "[server]\npublic_url = \"https://example.com/?a=b\"\n",
        "[server]\nmax_wait = \"0s\"\nheader_timeout = 10\nbody_timeout = \"10\"\nshutdown_grace = \"-5s\"\n",
        "[server]\nmax_in_flight = 0\nmax_open_requests = -1\nmax_body_bytes = \"1MiB\"\nsqlite_cache_bytes = 1.5\n",
    ]));
}

#[test]
fn providers() {
    insta::assert_snapshot!(snapshot(&[
        "[providers.a]\n",
        "[providers]\na = \"openai-chat\"\n",
        "[providers.a]\nkind = \"htpp\"\n",
        "[providers.a]\npreset = \"openai\"\n",
        "[providers.a]\npreset = \"openai-chat\"\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"localhost:8000\"\nmodle = \"m\"\n",
        "[providers.a]\nkind = \"http\"\nconcurrency = 0\nconnect_timeout = \"0s\"\nmax_answer_bytes = 0\nca_file = \"no.pem\"\n",
    ]));
}

#[test]
fn secrets() {
    insta::assert_snapshot!(snapshot(&[
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = \"sk-literal\"\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = { env = \"NOT_SET\" }\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = { env = \"EMPTY\" }\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = { env = \"BROKEN\" }\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = { env = \"OPENAI_API_KEY\", file = \"x\" }\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = {}\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = { file = \"secrets/none\" }\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = { file = \"secrets/empty\" }\n",
        "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\napi_key = { file = \"secrets\" }\n",
        "
[providers.a]
preset = \"openai-chat\"
model = \"m\"
api_key = { env = \"OPENAI_API_KEY\" }
secrets = { api_key = { env = \"POSTER_API_KEY\" } }
",
    ]));
}

/// A provider whose request and response are as given.
fn provider(rest: &str) -> String {
    format!("[providers.a]\nkind = \"http\"\n{rest}")
}

#[test]
fn requests_and_answers() {
    let texts = [
        "",
        "[providers.a.request]\nmethod = \"post\"\n",
        "[providers.a.request]\nurl = \"ftp://x/\"\n",
        "[providers.a.request]\nurl = \"http://\"\n",
        "[providers.a.request]\nurl = \"api.example.com/{{ input.x }}\"\n",
        "[providers.a.request]\nurl = \"https://api.example.com{{ input.x }}\"\n",
        "[providers.a.request]\nurl = \"{{ input.url }}\"\n",
        "[providers.a.request]\nurl = \"\"\nheaders = { \"x y\" = \"1\", Host = \"h\", a = 1, A = \"2\", content-length = \"3\" }\n",
        "[providers.a.request]\nurl = \"http://x/\"\nheaders = { b = \"1\", B = \"2\", onejob-job-id = \"3\" }\n",
        "[providers.a.request]\nurl = \"http://x/{{ input. }}\"\nbody = { a = \"{{ nope\", b = { c = [1, \"{% if %}\"] }, d = 07:32:00, e = inf }\n",
        "[providers.a.request]\nurl = \"http://x/{{ inptu.x }}\"\nbody = { a = \"{{ body.x }}\", b = \"{{ secret.key }}\", c = \"{{ provider.model }}\" }\n",
        "secrets = { key = { env = \"NOT_SET\" } }\n[providers.a.request]\nurl = \"http://x/\"\nheaders = { a = \"{{ secret.kye }}\", b = \"{{ secret.key }}\" }\n",
        "request = { url = \"http://x/\" }\nresponse = { output = \"{{ bdy.x }}\", handle = 7, usage = { input = \"{{ body.a }}\" }, truncated = true, modle = \"x\" }\n",
        "request = { url = \"http://x/\", headers = { idempotency-key = \"x\" } }\nidempotency = { header = \"Idempotency-Key\" }\n",
        "request = { url = \"http://x/\" }\nresponse = { usage = { input_tokens = 5 } }\n",
        "request = { url = \"http://x/\" }\noutcomes = { refused = [503, 200, 99, 600, \"x\"], invalid = [503], timeout = [504], unknown = 404 }\n",
    ]
    .map(provider);
    insta::assert_snapshot!(snapshot(&texts.each_ref().map(String::as_str)));
}

#[test]
fn what_is_not_supported_yet_is_checked_all_the_same() {
    let texts = [
        "lookup = {}\ncancel = {}\nidempotency = {}\ncallback = {}\ntokenizer = {}\n",
        "lookup = { url = \"http://x/\", status = \"{{ body.s }}\", every = \"2\", running = \"queued\", absent = \"failed\" }\n",
        "cancel = { url = \"http://x/{{ handel }}\", method = \"KILL\" }\n",
        "idempotency = { header = \"a b\", ttl = 24 }\n",
        "callback = { signature = \"md5\" }\n",
        "callback = { signature = \"hmac-sha256:X Y\", secret = \"s\" }\n",
        "callback = { signature = \"none\", secret = { env = \"OPENAI_API_KEY\" } }\n",
        "tokenizer = { file = \"tokenizers/none.json\", encoding = 7, context_window = 0 }\n",
        "tokenizer = { file = \"contracts/none.toml\", adds_bos = true }\n",
        "tokenizer = { encoding = \"o300k_base\", chat_template = \"schemas/none.jinja\" }\n",
        "tokenizer = { endpoint = \"{{ input.url }}\", bos_token = 7 }\n",
    ]
    .map(|rest| provider(&format!("request = {{ url = \"http://x/\" }}\n{rest}")));
    insta::assert_snapshot!(snapshot(&texts.each_ref().map(String::as_str)));
}

/// A task with these keys, and two providers.
fn task(rest: &str) -> String {
    format!("providers = {{ one = {{ kind = \"simulated\" }}, two = {{ kind = \"simulated\" }} }}\n[tasks.t]\n{rest}")
}

#[test]
fn tasks() {
    let texts = [
        "",
        "providers = []\n",
        "providers = \"one\"\n",
        "providers = [\"one\", 2]\n",
        "providers = [\"one\", \"too\", \"one\", \"elsewhere\"]\n",
        "providers = [\"one\"]\neffects = \"parallel\"\n",
        "providers = [\"one\"]\nattempt_timeout = \"0s\"\nlinger = \"-1s\"\nbackoff = \"2m\"\n",
        "providers = [\"one\"]\nattempt_timeout = 30\nlinger = \"10 minutes\"\n",
        "providers = [\"one\"]\ntries = 0\nmax_attempts = 0\n",
        "providers = [\"one\"]\ntries = 5\n",
        "providers = [\"one\"]\nhedge_after = \"10s\"\n",
        "providers = [\"one\"]\non_unknown = \"retry\"\n",
        "providers = [\"one\"]\non_unknown = {}\n",
        "providers = [\"one\"]\non_unknown = { abandon_after = 15 }\n",
        "providers = [\"one\"]\non_unknown = 15\n",
    ]
    .map(task);
    insta::assert_snapshot!(snapshot(&texts.each_ref().map(String::as_str)));
}

#[test]
fn chats_outputs_and_contracts() {
    let texts = [
        "providers = [\"one\"]\nchat = {}\n",
        "providers = [\"one\"]\nchat = { user = \"{{ body.x }}\", system = 7, temperature = 3, max_output_tokens = 0 }\n",
        "providers = [\"one\"]\ninput_schema = \"schemas/none.json\"\noutput = { schema = \"schemas/torn.json\" }\n",
        "providers = [\"one\"]\ninput_schema = \"schemas/twice.json\"\noutput = { schema = \"schemas/wrong.json\" }\n",
        "providers = [\"one\"]\noutput = { strict = true }\n",
        "providers = [\"one\"]\noutput = { strict = \"yes\", rules = [\"output.x <\", \"outptu.x\", 7] }\n",
        "providers = [\"one\"]\ncontract = {}\n",
        "providers = [\"one\"]\ncontract = { cases = \"contracts/no.toml\", repeat = 0, valid_for = \"1w\" }\n",
        "providers = [\"one\"]\ncontract = { cases = \"contracts/none.toml\" }\n",
        "providers = [\"one\"]\ncontract = { cases = \"contracts/torn.toml\" }\n",
        "providers = [\"one\"]\ncontract = { cases = \"contracts/wrong.toml\" }\n",
    ]
    .map(task);
    insta::assert_snapshot!(snapshot(&texts.each_ref().map(String::as_str)));
}

#[test]
fn a_provider_that_sends_a_chat_needs_one() {
    insta::assert_snapshot!(snapshot(&["
[providers.main]
preset = \"openai-chat\"
model = \"m\"
api_key = { env = \"OPENAI_API_KEY\" }
[tasks.t]
providers = [\"main\"]
"]));
}

#[test]
fn all_errors_are_found_at_once_in_the_order_of_the_file() {
    let errors = Folder::new().parse(
        "
[tasks.t]
providers = [\"nobody\"]
tries = 0
[server]
listen = \"0.0.0.0:1\"
zzz = 1
[providers.a]
kind = \"http\"
",
    );
    let lines: Vec<usize> = errors.unwrap_err().0.iter().map(|error| error.line).collect();
    assert_eq!(lines, [3, 4, 6, 7, 8]);
}

#[test]
fn a_provider_with_errors_does_not_make_its_tasks_wrong() {
    let errors = Config::from_text("[providers.a]\nkind = \"x\"\n[tasks.t]\nproviders = [\"a\"]\n").unwrap_err();
    assert_eq!(errors.0.len(), 1, "{errors}");
}

#[test]
fn an_error_of_a_preset_blames_the_preset_and_an_overlay_blames_the_file() {
    let text = "[providers.a]\npreset = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"http://x\"\n[providers.a.request.body]\nseed = \"{{ nope }}\"\n";
    let errors = Config::from_text(text).unwrap_err().to_string();
    assert!(errors.starts_with("onejob.toml:6: providers.a.request.body.seed: "), "{errors}");
}
