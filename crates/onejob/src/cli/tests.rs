//! The verbs against a server that says what a test wants it to say, and keeps what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use clap::{CommandFactory, Parser};

use super::exit::Exit;
use super::screen::Screen;
use super::{Cli, run};

/// What a server was asked.
#[derive(Clone, Debug)]
struct Asked {
    line: String,
    headers: Vec<String>,
    body: String,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find_map(|h| h.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v))
    }
}

/// A server that gives prepared answers, one after the other, the last one for ever. An empty
/// answer hangs up.
struct Fake {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    fn new(answers: Vec<String>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let answer = answers.get(n).or(answers.last()).cloned().unwrap_or_default();
                serve(stream.unwrap(), &answer, &kept);
            }
        });
        Fake { url, asked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, answer: &str, asked: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let mut request = Asked { line: lines.remove(0), headers: lines, body: String::new() };
    let length = request.header("content-length").map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    request.body = String::from_utf8(body).unwrap();
    asked.lock().unwrap().push(request);
    let mut stream = stream;
    let _ = stream.write_all(answer.as_bytes());
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}")
}

fn job(state: &str, more: &str) -> String {
    format!(
        r#"{{"id":"job_1","owner":"user_42","idempotency_key":"click-8f3a","task":"summarize","input":{{"n":1.50}},"state":"{state}","version":0,"completed_by":null,"result":null,"error":null,"duplicates":0,"safe_new_key":false,"created_at":"2026-01-31T09:30:00.123Z","updated_at":"2026-01-31T09:30:00.123Z","attempts":[{more}]}}"#
    )
}

const UNKNOWN: &str = r#"{"id":"att_1","number":1,"provider":"main","state":"unknown","cause":"timeout","started_at":"2026-01-31T09:30:00.123Z","finished_at":null,"failure":null,"resolution":null,"job_id":"job_1","owner":"user_42","task":"summarize"}"#;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
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

/// Runs a command line; gives its exit, its standard output and its standard error.
fn onejob(url: &str, arguments: &[&str]) -> (Exit, String, String) {
    let cli = Cli::try_parse_from([&["onejob"], arguments, &["--url", url]].concat()).unwrap();
    let (out, err) = (Buffer::default(), Buffer::default());
    let mut screen = Screen::of_writers(Box::new(out.clone()), Box::new(err.clone()));
    let exit = run(&cli.verb, &mut screen);
    (exit, out.text(), err.text())
}

/// A paragraph on one line.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const SUBMIT: [&str; 7] =
    ["submit", "--task", "summarize", "--owner", "user_42", "--input", r#"{"n":1.50,  "big":9007199254740993}"#];

fn submit(url: &str, more: &[&str]) -> (Exit, String, String) {
    onejob(url, &[&SUBMIT[..], more].concat())
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn a_submit_sends_the_input_as_it_was_written() {
    let server = Fake::new(vec![answer("201 Created", "", &job("running", ""))]);
    let (exit, ..) = submit(&server.url, &["--key", "click-8f3a", "--priority", "-3", "--pin", "main"]);
    assert_eq!(exit, Exit::Good);
    let asked = &server.asked()[0];
    assert_eq!(asked.line, "POST /v1/jobs HTTP/1.1");
    assert_eq!(asked.header("idempotency-key"), Some("click-8f3a"));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(
        asked.body,
        r#"{"owner":"user_42","task":"summarize","input":{"n":1.50,  "big":9007199254740993},"provider":"main","priority":-3}"#
    );
}

#[test]
fn a_submit_without_a_key_is_refused_and_nothing_is_sent() {
    let server = Fake::new(vec![]);
    let (exit, out, err) = submit(&server.url, &[]);
    assert_eq!((exit, out.as_str()), (Exit::Usage, ""));
    assert!(err.contains("--new-key"), "{err}");
    assert!(server.asked().is_empty());
}

#[test]
fn a_new_key_is_printed_and_sent() {
    let server = Fake::new(vec![answer("201 Created", "", &job("running", ""))]);
    let (_, _, err) = submit(&server.url, &["--new-key"]);
    let asked = server.asked();
    let key = asked[0].header("idempotency-key").unwrap();
    assert!(err.starts_with(&format!("key: {key} ")), "{err}");
}

#[test]
fn a_key_that_http_would_change_is_refused() {
    let server = Fake::new(vec![]);
    for key in ["", " a", "a b", "ä", "a\n"] {
        assert_eq!(submit(&server.url, &["--key", key]).0, Exit::Usage, "{key:?}");
    }
    assert!(server.asked().is_empty());
}

#[test]
fn a_post_is_repeated_with_the_same_key_when_the_server_is_away() {
    let server = Fake::new(vec![
        String::new(),
        answer("503 Service Unavailable", "Retry-After: 0\r\n", "{}"),
        answer("200 OK", "Idempotent-Replayed: true\r\n", &job("succeeded", "")),
    ]);
    let (exit, _, err) = submit(&server.url, &["--key", "k"]);
    assert_eq!(exit, Exit::Good, "{err}");
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|a| a.header("idempotency-key") == Some("k") && a.body == asked[0].body));
    assert_eq!(flat(&err).matches("with the same key").count(), 2, "{err}");
    assert!(err.contains("nothing was started"), "{err}");
}

#[test]
fn a_post_is_not_repeated_for_ever() {
    let server = Fake::new(vec![String::new()]);
    let (exit, _, err) = submit(&server.url, &["--key", "k", "--posts", "2"]);
    assert_eq!(exit, Exit::Unavailable);
    assert_eq!(server.asked().len(), 2);
    assert!(flat(&err).contains("Run the same command again, with the same key"), "{err}");
}

#[test]
fn a_refused_post_is_not_repeated() {
    let body = r#"{"type":"https://onejob.dev/problems/idempotency-conflict","title":"The key names another intent","status":409,"detail":"Same key, other intent.","job":"job_1","differs":["/input/n"]}"#;
    let server = Fake::new(vec![answer("409 Conflict", "Content-Type: application/problem+json\r\n", body)]);
    let (exit, out, err) = submit(&server.url, &["--key", "k"]);
    assert_eq!((exit, out.as_str()), (Exit::Conflict, ""));
    assert_eq!(server.asked().len(), 1);
    insta::assert_snapshot!(err, @r"
    error: The key names another intent (409 idempotency-conflict)
      Same key, other intent.
      differs: /input/n
      job: job_1
    next: the key already names another intent: see `onejob get job_1`. The same
          wish needs exactly the same task, input and pinned provider; another wish
          needs another key.
    ");
    let (exit, out, _) = submit(&server.url, &["--key", "k", "--json"]);
    assert_eq!((exit, out), (Exit::Conflict, format!("{body}\n")));
}

#[test]
fn a_wait_holds_until_the_end() {
    let server = Fake::new(vec![
        answer("201 Created", "", &job("running", "")),
        answer("503 Service Unavailable", "", "{}"),
        answer("200 OK", "", &job("succeeded", "")),
    ]);
    let (exit, out, _) = submit(&server.url, &["--key", "k", "--wait", "30", "--json"]);
    assert_eq!(exit, Exit::Good);
    assert!(out.contains(r#""state":"succeeded""#) && out.lines().count() == 1, "{out}");
    assert!(server.asked()[2].line.starts_with("GET /v1/jobs/job_1?wait=20000ms"), "{:?}", server.asked()[2]);
}

#[test]
fn a_wait_that_is_over_says_so() {
    let server = Fake::new(vec![answer("200 OK", "", &job("running", ""))]);
    assert_eq!(onejob(&server.url, &["get", "job_1", "--wait", "0"]).0, Exit::StillOpen);
    assert_eq!(onejob(&server.url, &["get", "job_1"]).0, Exit::Good);
}

#[test]
fn json_is_the_servers_own() {
    let body = job("succeeded", "");
    let server = Fake::new(vec![answer("200 OK", "", &body)]);
    assert_eq!(onejob(&server.url, &["get", "job_1", "--json"]), (Exit::Good, format!("{body}\n"), String::new()));
}

#[test]
fn a_job_is_found_by_its_key() {
    let list = format!(r#"{{"jobs":[{}],"next_cursor":null}}"#, job("failed", ""));
    let server = Fake::new(vec![answer("200 OK", "", &list), answer("200 OK", "", &job("failed", ""))]);
    let (exit, ..) = onejob(&server.url, &["get", "--owner", "user 42", "--key", "a&b"]);
    assert_eq!(exit, Exit::JobNotDone);
    assert_eq!(server.asked()[0].line, "GET /v1/jobs?owner=user+42&idempotency_key=a%26b HTTP/1.1");
    assert_eq!(server.asked()[1].line, "GET /v1/jobs/job_1 HTTP/1.1");
}

#[test]
fn an_id_cannot_climb_out_of_its_path() {
    let server = Fake::new(vec![answer("404 Not Found", "", "{}")]);
    assert_eq!(onejob(&server.url, &["get", "../attempts?x"]).0, Exit::NotFound);
    assert_eq!(server.asked()[0].line, "GET /v1/jobs/..%2Fattempts%3Fx HTTP/1.1");
}

#[test]
fn unknown_attempts_raise_the_alarm_and_say_how_they_end() {
    let some = format!(r#"{{"attempts":[{UNKNOWN}],"next_cursor":null}}"#);
    let server =
        Fake::new(vec![answer("200 OK", "", &some), answer("200 OK", "", r#"{"attempts":[],"next_cursor":null}"#)]);
    let (exit, out, _) = onejob(&server.url, &["unknowns"]);
    assert_eq!(exit, Exit::Unknown);
    for part in ["att_1", "timeout", "2026-01-31 09:30Z", "onejob resolve att_1"] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert_eq!(onejob(&server.url, &["unknowns"]).0, Exit::Good);
    assert_eq!(server.asked()[0].line, "GET /v1/attempts?state=unknown&limit=50 HTTP/1.1");
}

#[test]
fn watching_stays_on_unknown_and_ends_with_the_job() {
    let won = UNKNOWN.replace("unknown", "succeeded").replace("\"timeout\"", "null");
    let server = Fake::new(vec![
        answer("200 OK", "", &job("unknown", UNKNOWN)),
        answer("200 OK", "", &job("unknown", UNKNOWN)),
        String::new(),
        answer("200 OK", "", &job("succeeded", &won)),
    ]);
    let (exit, out, err) = onejob(&server.url, &["watch", "job_1"]);
    assert_eq!(exit, Exit::Good);
    assert_eq!(out.matches("#1 main: unknown (no answer in time); nothing else starts").count(), 1, "{out}");
    assert_eq!(out.matches("#1 main: succeeded").count(), 1, "{out}");
    assert!(err.contains("away:") && err.contains("is back"), "{err}");
}

#[test]
fn a_watch_that_is_over_tells_unknown_from_open() {
    let server =
        Fake::new(vec![answer("200 OK", "", &job("unknown", UNKNOWN)), answer("200 OK", "", &job("queued", ""))]);
    assert_eq!(onejob(&server.url, &["watch", "job_1", "--timeout", "0"]).0, Exit::Unknown);
    assert_eq!(onejob(&server.url, &["watch", "job_1", "--timeout", "0"]).0, Exit::StillOpen);
}

#[test]
fn a_list_pages() {
    let page =
        |next: &str| answer("200 OK", "", &format!(r#"{{"jobs":[{}],"next_cursor":{next}}}"#, job("queued", "")));
    let server = Fake::new(vec![page("\"c1\""), page("null"), page("\"c1\"")]);
    let (exit, out, _) = onejob(&server.url, &["list", "--state", "queued", "--all", "--limit", "1"]);
    assert_eq!((exit, out.matches("job_1").count()), (Exit::Good, 2), "{out}");
    assert_eq!(server.asked()[1].line, "GET /v1/jobs?limit=1&state=queued&cursor=c1 HTTP/1.1");
    let (_, _, err) = onejob(&server.url, &["list"]);
    assert!(err.contains("--cursor c1"), "{err}");
}

#[test]
fn cancelling_by_key_is_one_call() {
    let server = Fake::new(vec![answer("200 OK", "", &job("cancelled", UNKNOWN))]);
    let (exit, _, err) = onejob(&server.url, &["cancel", "--owner", "u", "--key", "k"]);
    assert_eq!((exit, server.asked().len()), (Exit::Good, 1));
    assert_eq!(server.asked()[0].line, "POST /v1/jobs/cancel HTTP/1.1");
    assert_eq!(server.asked()[0].body, r#"{"owner":"u","idempotency_key":"k"}"#);
    assert!(err.contains("will be dropped"), "{err}");
}

#[test]
fn a_retry_reopens_or_starts_by_hand() {
    let attempt = UNKNOWN.replace("unknown", "starting");
    let server = Fake::new(vec![
        answer("200 OK", "", &job("queued", "")),
        answer("200 OK", "", &job("queued", "")),
        answer("201 Created", "", &attempt),
        answer("200 OK", "", &job("running", &attempt)),
    ]);
    assert_eq!(onejob(&server.url, &["retry", "job_1"]).0, Exit::Good);
    assert_eq!(onejob(&server.url, &["retry", "job_1", "--provider", "backup", "--force"]).0, Exit::Good);
    let asked = server.asked();
    assert_eq!(asked[0].line, "POST /v1/jobs/job_1/retry HTTP/1.1");
    assert_eq!(asked[2].line, "POST /v1/jobs/job_1/attempts HTTP/1.1");
    assert_eq!(asked[2].body, r#"{"provider":"backup","force":true}"#);
}

#[test]
fn resolving_sends_the_result_as_it_was_written() {
    let server = Fake::new(vec![answer("200 OK", "", &job("succeeded", ""))]);
    let word = ["resolve", "att_1", "--outcome", "succeeded", "--reason", "seen", "--result", "[1.0, 1e400]"];
    assert_eq!(onejob(&server.url, &word).0, Exit::Good);
    assert_eq!(server.asked()[0].body, r#"{"outcome":"succeeded","reason":"seen","result":[1.0, 1e400]}"#);
    assert!(Cli::try_parse_from(["onejob", "resolve", "att_1", "--outcome", "succeeded", "--reason", "x"]).is_err());
    let odd = ["resolve", "att_1", "--outcome", "failed", "--reason", "x", "--result", "1"];
    assert_eq!(onejob(&server.url, &odd).0, Exit::Usage);
}

#[test]
fn the_access_key_is_sent_and_never_shown() {
    let server = Fake::new(vec![answer("401 Unauthorized", "", r#"{"title":"No"}"#)]);
    let (exit, out, err) = onejob(&server.url, &["get", "job_1", "--access-key", "s3cret"]);
    assert_eq!(exit, Exit::NotAllowed);
    assert_eq!(server.asked()[0].header("authorization"), Some("Bearer s3cret"));
    assert!(!out.contains("s3cret") && !err.contains("s3cret"));
}

#[test]
fn a_redirect_is_not_followed() {
    let server = Fake::new(vec![answer("302 Found", "Location: /elsewhere\r\n", "")]);
    assert_eq!(onejob(&server.url, &["get", "job_1"]).0, Exit::Unavailable);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn what_is_no_onejob_server_is_said_to_be_none() {
    let server = Fake::new(vec![answer("200 OK", "", "<html>"), answer("502 Bad Gateway", "", "<html>")]);
    for _ in 0..2 {
        let (exit, _, err) = onejob(&server.url, &["get", "job_1"]);
        assert_eq!(exit, Exit::Unavailable);
        assert!(err.contains("ONEJOB_URL"), "{err}");
    }
}

#[test]
fn text_of_others_cannot_move_the_cursor() {
    let server = Fake::new(vec![answer("200 OK", "", &job("queued", "").replace("user_42", "\\u001b[2Jx"))]);
    let (_, out, _) = onejob(&server.url, &["get", "job_1"]);
    assert!(!out.contains('\x1b') && out.contains("\\u{1b}[2Jx"), "{out}");
}

/// Takes one line and goes away.
struct Head(usize);

impl Write for Head {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += 1;
        if self.0 > 1 { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let server = Fake::new(vec![answer("200 OK", "", &job("queued", ""))]);
    let cli = Cli::try_parse_from(["onejob", "get", "job_1", "--url", &server.url]).unwrap();
    let err = Buffer::default();
    let mut screen = Screen::of_writers(Box::new(Head(0)), Box::new(err.clone()));
    assert_eq!(run(&cli.verb, &mut screen), Exit::ClosedPipe);
    assert_eq!(err.text(), "");
}

#[test]
fn exit_codes_are_all_different() {
    let mut codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
    codes.dedup();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 141]);
}

#[test]
fn every_verb_has_examples() {
    for verb in Cli::command().get_subcommands() {
        let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains(&format!("onejob {}", verb.get_name())), "{}", verb.get_name());
    }
}

#[test]
fn prose_is_broken_at_spaces_and_commands_stay_whole() {
    let wrapped = super::screen::wrap("see `onejob get job_1` now, or wait for a-very-long-word-indeed", 16);
    assert_eq!(wrapped, ["see", "`onejob get job_1`", "now, or wait for", "a-very-long-word-indeed"]);
}

#[test]
fn the_page_about_the_command_line_has_every_verb_and_every_exit_code() {
    let page = include_str!("../../../../docs/cli.md");
    for verb in Cli::command().get_subcommands() {
        let name = verb.get_name();
        assert!(page.contains(&format!("\n## {name}\n\n```sh\nonejob {name}")), "a section with an example of {name}");
        assert!(page.contains(&format!("| [`{name}`](#{name}) |")), "a row for {name}");
        for option in verb.get_arguments().filter(|option| !option.is_hide_set()) {
            let Some(long) = option.get_long() else { continue };
            let said = page.contains(&format!("--{long}")) || SELF_EVIDENT.contains(&long) || name == "bench";
            assert!(said, "--{long} of {name}");
        }
    }
    for exit in Exit::ALL {
        let row = format!("\n| {} | {} |\n", exit.code(), exit.meaning());
        assert!(page.contains(&row), "{row}");
    }
}

/// Options that need no words beyond their help.
const SELF_EVIDENT: [&str; 1] = ["help"];

#[test]
fn a_block_is_drawn_over_the_one_before_until_it_is_kept() {
    let out = Buffer::default();
    let mut screen = Screen::of_writers(Box::new(out.clone()), Box::new(std::io::sink()));
    let lines = |n: usize| vec!["x".to_owned(); n];
    screen.redraw(&lines(2)).unwrap();
    screen.redraw(&lines(3)).unwrap();
    screen.keep();
    screen.redraw(&lines(1)).unwrap();
    let line = "\x1b[2Kx\n";
    let expected = format!("{}\x1b[J\x1b[2A\r{}\x1b[J{line}\x1b[J", line.repeat(2), line.repeat(3));
    assert_eq!(out.text(), expected);
}
