//! The client verbs as a script uses them: the binary against a running server.

use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::world::World;

/// Exit code, standard output, standard error.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    pub(crate) async fn onejob(&self, arguments: &[&str]) -> Said {
        let (url, arguments) = (self.url(), arguments.iter().map(ToString::to_string).collect::<Vec<_>>());
        let run = move || {
            std::process::Command::new(env!("CARGO_BIN_EXE_onejob"))
                .args(&arguments)
                .env("ONEJOB_URL", url)
                .env_remove("ONEJOB_KEY")
                .stdin(Stdio::null())
                .output()
                .unwrap()
        };
        let Output { status, stdout, stderr } = tokio::task::spawn_blocking(run).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
    }

    async fn submit_line(&self, key: &str, task: &str, input: &str, more: &[&str]) -> Said {
        let line = ["submit", "--owner", "user_1", "--task", task, "--key", key, "--input", input];
        self.onejob(&[&line, more].concat()).await
    }
}

fn json_of(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("no JSON: {} {}", said.out, said.err))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_from_its_post_to_its_result() {
    let world = World::new().await;
    let input = r#"{"do": {"output": {"sum": 12345678901234567890.10}}}"#;
    let made = world.submit_line("k", "plain", input, &["--wait", "20"]).await;
    assert_eq!(made.code, 0, "{} {}", made.out, made.err);
    assert!(made.out.contains(r#"{"sum":12345678901234567890.10}"#), "numbers stay as they are: {}", made.out);
    assert!(made.err.contains("made a new job"), "{}", made.err);

    let found = world.submit_line("k", "plain", input, &[]).await;
    assert_eq!((found.code, found.err.contains("nothing was started")), (0, true), "{}", found.err);
    let other = world.submit_line("k", "plain", "{}", &["--json"]).await;
    assert_eq!((other.code, &json_of(&other)["differs"]), (4, &json!(["/input/do"])));

    let by_key = world.onejob(&["get", "--owner", "user_1", "--key", "k", "--json"]).await;
    let id = json_of(&by_key)["id"].as_str().unwrap().to_owned();
    assert_eq!(by_key.out.trim_end(), world.get(&format!("/v1/jobs/{id}")).await.text, "the server's own bytes");
    let list = world.onejob(&["list", "--owner", "user_1", "--state", "succeeded"]).await;
    assert!(list.out.contains(&id), "{}", list.out);
    let watched = world.onejob(&["watch", &id]).await;
    assert_eq!((watched.code, watched.out.contains("#1 main: succeeded")), (0, true), "{}", watched.out);
    let notices = world.onejob(&["get", &id, "--notices"]).await;
    assert!(notices.out.contains("duplicate") && notices.out.contains("conflict"), "{}", notices.out);
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_attempt_is_found_blocked_and_resolved() {
    let world = World::new().await;
    let unknown = world.submit_line("k", "plain", r#"{"do": {"gate": "never"}}"#, &["--wait", "20"]).await;
    assert_eq!(unknown.code, 3, "{}", unknown.out);
    let listed = world.onejob(&["unknowns"]).await;
    assert_eq!(listed.code, 3);
    let listed = world.onejob(&["unknowns", "--json"]).await;
    let attempt = &json_of(&listed)["attempts"][0];
    let (attempt, job) = (attempt["id"].as_str().unwrap(), attempt["job_id"].as_str().unwrap());
    assert!(unknown.out.contains(&format!("onejob resolve {attempt}")), "{}", unknown.out);

    let retried = world.onejob(&["retry", job, "--provider", "main", "--force"]).await;
    assert_eq!(retried.code, 4);
    assert!(retried.err.contains("attempt-in-flight") && retried.err.contains("onejob resolve"), "{}", retried.err);
    let watched = world.onejob(&["watch", job, "--timeout", "0"]).await;
    assert_eq!(watched.code, 3);

    let word = ["resolve", attempt, "--outcome", "succeeded", "--result", "1.50", "--reason", "seen there"];
    let resolved = world.onejob(&word).await;
    assert_eq!(resolved.code, 0, "{}", resolved.err);
    assert!(resolved.out.contains("by operator: seen there") && resolved.out.contains("\n1.50\n"), "{}", resolved.out);
    assert_eq!(world.onejob(&word).await.code, 4, "what has ended never changes");
    assert_eq!(world.onejob(&["unknowns"]).await.code, 0);
    world.provider.open("never");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_says_why_and_is_retried_under_its_own_id() {
    let world = World::new().await;
    let input = r#"{"do": {"first": {"status": 400}, "output": 2}}"#;
    let failed = world.submit_line("k", "plain", input, &["--wait", "20"]).await;
    assert_eq!(failed.code, 1, "{}", failed.out);
    assert!(failed.out.contains("invalid, status 400") && failed.out.contains("onejob retry job_"), "{}", failed.out);
    let id = failed.out.split_whitespace().next().unwrap().to_owned();
    assert_eq!(world.onejob(&["retry", &id]).await.code, 0);
    let ended = world.onejob(&["get", &id, "--wait", "20", "--json"]).await;
    assert_eq!((ended.code, &json_of(&ended)["result"]), (0, &json!(2)));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_cancelled_before_and_after_it_arrives() {
    let world = World::new().await;
    let id = json_of(&world.submit_line("k", "patient", r#"{"do": {"gate": "g"}}"#, &["--json"]).await)["id"].clone();
    let id = id.as_str().unwrap();
    world.provider.reached(id, 1).await;
    let cancelled = world.onejob(&["cancel", id]).await;
    assert_eq!((cancelled.code, cancelled.err.contains("will be dropped")), (0, true), "{}", cancelled.err);
    assert_eq!(world.onejob(&["get", id]).await.code, 1);
    assert_eq!(world.onejob(&["cancel", "--owner", "user_1", "--key", "later"]).await.code, 0);
    assert_eq!(world.submit_line("later", "plain", "{}", &[]).await.code, 1, "the late post finds a cancelled job");
    world.provider.open("g");
    world.until(id, "ended", |job| !job["attempts"][0]["finished_at"].is_null()).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_and_who_is_not_there() {
    let world = World::new().await;
    assert_eq!(world.onejob(&["get", "job_00000000000000000000000000"]).await.code, 6);
    assert_eq!(world.submit_line("k", "no-such-task", "{}", &[]).await.code, 6);
    assert_eq!(world.submit_line("k", "plain", "{", &[]).await.code, 2);
    assert_eq!(world.onejob(&["get"]).await.code, 2);
    assert_eq!(world.onejob(&["get", "job_1", "--url", "http://127.0.0.1:1"]).await.code, 5);
    world.end().await;
}

#[test]
fn a_closed_pipe_is_no_panic() {
    for arguments in [&["--help"][..], &["demo", "--fast"], &["list", "--help"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onejob"));
        let (reader, writer) = std::io::pipe().unwrap();
        command.args(arguments).stdout(writer).stderr(Stdio::piped());
        drop(reader);
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code().is_some_and(|code| code != 101), "{arguments:?}: {:?} {err}", output.status);
        assert!(!err.contains("panicked"), "{arguments:?}: {err}");
    }
}
