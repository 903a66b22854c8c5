//! Another provider takes over only if it has proved itself for this very task (R9), and never after
//! silence.

use std::sync::Arc;
use std::time::Duration;

use onejob::id::certificate_text;
use serde_json::{Value, json};

use super::world::{World, states};

/// Three providers of one task with a contract, one try each.
const TASK: &str = r#"
[providers.third]
kind = "http"
[providers.third.request]
method = "POST"
url = "{url}/third/do"
body = { do = "{{ input.do }}" }
[providers.third.response]
output = "{{ body.output }}"
model = "{{ body.model }}"
[tasks.proved]
providers = ["main", "backup", "third"]
attempt_timeout = "400ms"
linger = "20s"
tries = 1
backoff = "10ms"
[tasks.proved.output]
rules = ["output.n > 0"]
[tasks.proved.contract]
cases = "cases.toml"
"#;

fn refused_then(backup: Value) -> Value {
    json!({ "main": { "status": 429 }, "backup": backup, "third": { "output": { "n": 3 } } })
}

async fn world() -> World {
    World::with("", TASK).await
}

fn providers(job: &Value) -> Vec<&str> {
    job["attempts"].as_array().unwrap().iter().map(|a| a["provider"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_provider_that_proved_itself_takes_over_and_the_attempt_says_on_what_it_stands() {
    let world = world().await;
    let certificate = world.certify("proved", "backup").await;
    let id = world.submit("k", "proved", refused_then(json!({ "output": { "n": 2 } }))).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((states(&job), providers(&job)), (vec!["failed", "succeeded"], vec!["main", "backup"]));
    assert_eq!(job["attempts"][1]["certificate"], certificate_text(certificate));
    assert_eq!((&job["result"]["n"], &job["attempts"][0]["certificate"]), (&json!(2), &json!(null)));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_provider_without_a_certificate_is_passed_over() {
    let world = world().await;
    world.certify("proved", "third").await;
    let id = world.submit("k", "proved", refused_then(json!({ "output": { "n": 2 } }))).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((providers(&job), world.provider.executions_at(&id, "backup")), (vec!["main", "third"], 0));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_certificate_of_another_task_another_provider_or_an_ended_one_is_none() {
    let world = World::with("", &format!("{TASK}\n[tasks.other]\nproviders = [\"main\", \"backup\"]\n[tasks.other.contract]\ncases = \"cases.toml\"\n")).await;
    world.certify("other", "backup").await;
    world.certify_for("proved", "backup", 0).await;
    let id = world.submit("k", "proved", refused_then(json!({}))).await.id();
    let job = world.until_state(&id, "failed").await;
    assert_eq!(
        (&job["error"]["failover"], &job["error"]["class"]),
        (&json!("no_verified_provider"), &json!("refused"))
    );
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_another_rule_is_another_contract() {
    let mut world = world().await;
    world.certify("proved", "backup").await;
    world.stop().await;
    world.edit_config("output.n > 0", "output.n > 1");
    world.start().await;
    let id = world.submit("k", "proved", refused_then(json!({}))).await.id();
    assert_eq!(world.until_state(&id, "failed").await["error"]["failover"], "no_verified_provider");
    // And the old one again is the old one.
    world.stop().await;
    world.edit_config("output.n > 1", "output.n > 0");
    world.start().await;
    let id = world.submit("k2", "proved", refused_then(json!({ "output": { "n": 2 } }))).await.id();
    world.until_state(&id, "succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_silence_never_fails_over() {
    let world = world().await;
    world.certify("proved", "backup").await;
    let what = json!({ "main": { "gate": "silent", "output": { "n": 1 } }, "backup": { "output": { "n": 2 } } });
    let id = world.submit("k", "proved", what).await.id();
    world.until_state(&id, "unknown").await;
    // By hand neither.
    let by_hand = world.post(&format!("/v1/jobs/{id}/attempts"), json!({ "provider": "backup" })).await;
    assert_eq!((by_hand.status, by_hand.problem().as_str()), (409, "attempt-in-flight"));
    world.provider.open("silent");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((&job["result"]["n"], world.provider.executions_at(&id, "backup")), (&json!(1), 0));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_an_operators_word_that_it_did_not_happen_is_followed_like_any_certain_failure() {
    let world = world().await;
    world.certify("proved", "backup").await;
    let what = json!({ "main": { "first": { "gate": "silent" }, "status": 429 }, "backup": { "output": { "n": 2 } } });
    let id = world.submit("k", "proved", what).await.id();
    let job = world.until_state(&id, "unknown").await;
    let attempt = job["attempts"][0]["id"].as_str().unwrap();
    let word = json!({ "outcome": "failed", "reason": "looked at their console" });
    assert_eq!(world.post(&format!("/v1/attempts/{attempt}/resolve"), word).await.status, 200);
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(providers(&job), ["main", "main", "backup"], "what never happened used up no try");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_what_is_abandoned_stays_with_its_provider() {
    let world = world().await;
    world.certify("proved", "backup").await;
    let what =
        json!({ "main": { "first": { "gate": "silent" }, "output": { "n": 1 } }, "backup": { "output": { "n": 2 } } });
    let id = world.submit("k", "proved", what).await.id();
    let job = world.until_state(&id, "unknown").await;
    let attempt = job["attempts"][0]["id"].as_str().unwrap();
    let word = json!({ "outcome": "abandoned", "reason": "nobody will ever know" });
    assert_eq!(world.post(&format!("/v1/attempts/{attempt}/resolve"), word).await.status, 200);
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(providers(&job), ["main", "main"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_job_never_goes_elsewhere() {
    let world = world().await;
    world.certify("proved", "backup").await;
    let body =
        json!({ "owner": "u", "task": "proved", "provider": "main", "input": { "do": refused_then(json!({})) } });
    let id = world.submit_body("k", body).await.id();
    let job = world.until_state(&id, "failed").await;
    assert!(job["error"].get("failover").is_none(), "{job}");
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_goes_nowhere_else_and_the_attempts_of_a_job_are_limited() {
    let mut world = world().await;
    world.certify("proved", "backup").await;
    world.certify("proved", "third").await;
    let wrong = json!({ "main": { "status": 422 }, "backup": { "output": { "n": 2 } } });
    let id = world.submit("wrong", "proved", wrong).await.id();
    world.until_state(&id, "failed").await;
    assert_eq!(world.provider.executions(&id), 1);
    world.stop().await;
    world.edit_config("[tasks.proved]", "[tasks.proved]\nmax_attempts = 2");
    world.start().await;
    let id = world.submit("limited", "proved", refused_then(json!({ "status": 429 }))).await.id();
    let job = world.until_state(&id, "failed").await;
    assert_eq!(providers(&job), ["main", "backup"]);
    assert!(job["error"].get("failover").is_none(), "the limit ended it, not the lack of a proof: {job}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_an_answer_that_breaks_the_contract_takes_the_certificate_back_before_the_job_goes_on() {
    let world = world().await;
    let certificate = world.certify("proved", "backup").await;
    let id = world.submit("k", "proved", refused_then(json!({ "output": { "n": 0 } }))).await.id();
    let job = world.until_state(&id, "failed").await;
    assert_eq!(job["attempts"][1]["failure"]["class"], "broken_contract");
    assert_eq!(job["error"]["failover"], "no_verified_provider", "third never proved itself");
    assert!(world.suspended(certificate).await.unwrap().contains("breaks the task's contract"));
    assert!(world.notices(&id).await.contains(&"certificate_suspended".to_owned()));
    let id = world.submit("k2", "proved", refused_then(json!({ "output": { "n": 2 } }))).await.id();
    world.until_state(&id, "failed").await;
    assert_eq!(world.provider.executions_at(&id, "backup"), 0);
    assert!(world.get("/metrics").await.text.contains("onejob_certificates_suspended_total 1"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_another_model_may_win_and_takes_the_certificate_back() {
    let world = world().await;
    let certificate = world.certify("proved", "backup").await;
    let backup = json!({ "output": { "n": 2 }, "model": "m-2" });
    let id = world.submit("k", "proved", refused_then(backup)).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(job["result"]["n"], 2, "the work is done");
    assert!(world.suspended(certificate).await.unwrap().contains("m-2"));
    assert_eq!(world.notices(&id).await, ["certificate_suspended"]);
    let id = world.submit("k2", "proved", refused_then(json!({}))).await.id();
    world.until_state(&id, "failed").await;
    assert_eq!(world.provider.executions_at(&id, "backup"), 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_the_first_providers_own_certificate_is_taken_back_too() {
    let world = world().await;
    let of_main = world.certify("proved", "main").await;
    let id = world.submit("k", "proved", json!({ "output": { "n": 1 }, "model": "m-2" })).await.id();
    world.until_state(&id, "succeeded").await;
    assert!(world.suspended(of_main).await.is_some());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_by_hand_a_provider_that_proved_itself_needs_no_force() {
    let world = World::with("", &format!("{TASK}{RACED}")).await;
    let what = json!({ "main": { "gate": "slow" }, "backup": { "output": "by hand" } });
    let id = world.submit("k", "raced", what).await.id();
    world.until(&id, "running", |job| states(job) == ["running"]).await;
    let attempts = format!("/v1/jobs/{id}/attempts");
    let refused = world.post(&attempts, json!({ "provider": "backup" })).await;
    assert_eq!((refused.status, refused.problem().as_str()), (409, "provider-not-verified"));
    let certificate = world.certify("raced", "backup").await;
    let started = world.post(&attempts, json!({ "provider": "backup" })).await;
    assert_eq!(started.status, 201, "{started:?}");
    assert_eq!(started.json()["certificate"], certificate_text(certificate));
    assert_eq!(world.until_state(&id, "succeeded").await["result"], "by hand");
    world.provider.open("slow");
    world.until(&id, "superseded", |job| states(job)[0] == "superseded").await;
    world.end().await;
}

/// A task of which two attempts may run side by side.
const RACED: &str = r#"
[tasks.raced]
providers = ["main", "backup"]
effects = "racing"
attempt_timeout = "20s"
[tasks.raced.contract]
cases = "cases.toml"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_that_is_retried_has_all_its_tries_again() {
    let world = world().await;
    world.certify("proved", "backup").await;
    let id = world
        .submit("k", "proved", refused_then(json!({ "status": 503, "headers": { "retry-after": "0" } })))
        .await
        .id();
    world.until_state(&id, "failed").await;
    world.certify("proved", "third").await;
    assert_eq!(world.post(&format!("/v1/jobs/{id}/retry"), json!({})).await.status, 200);
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(providers(&job), ["main", "backup", "main", "backup", "third"]);
    world.end().await;
}

/// The plan stands in the line of a provider whose only slot is taken; meanwhile its certificate ends.
async fn queued_behind_a_full_slot(world: &World) -> String {
    let hold = world.submit("hold", "held", json!({ "backup": { "gate": "slot" } })).await.id();
    world.provider.reached(&hold, 1).await;
    let what =
        json!({ "main": { "status": 429 }, "backup": { "output": { "n": 2 } }, "third": { "output": { "n": 3 } } });
    let id = world.submit("k", "proved", what).await.id();
    world.until(&id, "queued elsewhere", |job| states(job) == ["failed"] && job["state"] == "queued").await;
    id
}

const NARROW: &str = "[tasks.held]\nproviders = [\"backup\"]\nattempt_timeout = \"20s\"\n";

async fn narrow_world() -> World {
    let mut world = World::with("", &format!("{TASK}{NARROW}")).await;
    world.stop().await;
    world.edit_config("[providers.backup]", "[providers.backup]\nconcurrency = 1");
    world.start().await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_certificate_that_is_taken_back_while_a_job_waits_starts_nothing() {
    let world = narrow_world().await;
    let certificate = world.certify("proved", "backup").await;
    world.certify("proved", "third").await;
    let id = queued_behind_a_full_slot(&world).await;
    assert!(world.engine().suspend(certificate, "by hand".into()).await.unwrap());
    world.provider.open("slot");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((providers(&job), world.provider.executions_at(&id, "backup")), (vec!["main", "third"], 0));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_certificate_that_ends_while_a_job_waits_starts_nothing() {
    let world = narrow_world().await;
    let valid_ms = 4_000;
    world.certify_for("proved", "backup", valid_ms).await;
    let id = queued_behind_a_full_slot(&world).await;
    tokio::time::sleep(Duration::from_millis(valid_ms.unsigned_abs())).await;
    world.provider.open("slot");
    let job = world.until_state(&id, "failed").await;
    assert_eq!(
        (&job["error"]["class"], &job["error"]["failover"]),
        (&json!("refused"), &json!("no_verified_provider"))
    );
    assert_eq!(world.provider.executions_at(&id, "backup"), 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_job_that_waits_stands_on_a_newer_certificate_where_there_is_one() {
    let world = narrow_world().await;
    let old = world.certify("proved", "backup").await;
    let id = queued_behind_a_full_slot(&world).await;
    assert!(world.engine().suspend(old, "by hand".into()).await.unwrap());
    let new = world.certify("proved", "backup").await;
    world.provider.open("slot");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(job["attempts"][1]["certificate"], certificate_text(new));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_plan_that_survived_a_restart_is_looked_at_under_the_new_configuration() {
    let mut world = narrow_world().await;
    world.certify("proved", "backup").await;
    let id = queued_behind_a_full_slot(&world).await;
    world.stop().await;
    world.edit_config("output.n > 0", "output.n > 1");
    world.start().await;
    let job = world.until_state(&id, "failed").await;
    assert_eq!(job["error"]["failover"], "no_verified_provider");
    assert_eq!(world.provider.executions_at(&id, "backup"), 0);
    world.provider.open("slot");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_fail_over_at_once_and_each_is_done_once() {
    let world = Arc::new(world().await);
    world.certify("proved", "backup").await;
    let posts = (0..40).map(|n| {
        let world = world.clone();
        tokio::spawn(async move {
            world.submit(&format!("k{n}"), "proved", refused_then(json!({ "output": { "n": 2 } }))).await.id()
        })
    });
    for post in posts.collect::<Vec<_>>() {
        let id = post.await.unwrap();
        world.until_state(&id, "succeeded").await;
        assert_eq!(world.provider.executions_at(&id, "backup"), 1);
    }
    Arc::into_inner(world).unwrap().end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_provider_that_is_gone_from_the_configuration_holds_no_job_that_was_to_go_there() {
    let mut world = narrow_world().await;
    world.certify("proved", "backup").await;
    world.certify("proved", "third").await;
    let what =
        json!({ "main": { "status": 429 }, "backup": { "first": { "gate": "x" } }, "third": { "output": { "n": 3 } } });
    let hold = world.submit("hold", "held", json!({ "backup": { "gate": "slot" } })).await.id();
    world.provider.reached(&hold, 1).await;
    let id = world.submit("k", "proved", what).await.id();
    world.until(&id, "queued elsewhere", |job| states(job) == ["failed"] && job["state"] == "queued").await;
    world.stop().await;
    world.edit_config("providers = [\"main\", \"backup\", \"third\"]", "providers = [\"main\", \"third\"]");
    world.edit_config("[tasks.race]\nproviders = [\"main\", \"backup\"]", "[tasks.race]\nproviders = [\"main\"]");
    world.edit_config("[tasks.held]\nproviders = [\"backup\"]", "[tasks.held]\nproviders = [\"main\"]");
    world.edit_config("[providers.backup", "[providers.renamed");
    world.start().await;
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(providers(&job), ["main", "third"]);
    world.provider.open("slot");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_pause_before_the_next_try_at_a_provider_that_is_gone_holds_no_job() {
    let mut world = world().await;
    world.stop().await;
    world.edit_config(
        "tries = 1\nbackoff = \"10ms\"\n[tasks.proved.output]",
        "tries = 2\nbackoff = \"10ms\"\n[tasks.proved.output]",
    );
    world.start().await;
    world.certify("proved", "backup").await;
    world.certify("proved", "third").await;
    let busy = json!({ "status": 429, "headers": { "retry-after": "600" } });
    let id = world.submit("k", "proved", refused_then(busy)).await.id();
    world.until(&id, "queued for much later", |job| states(job).len() == 3 && job["state"] == "queued").await;
    world.stop().await;
    world.edit_config("providers = [\"main\", \"backup\", \"third\"]", "providers = [\"main\", \"third\"]");
    world.edit_config("[tasks.race]\nproviders = [\"main\", \"backup\"]", "[tasks.race]\nproviders = [\"main\"]");
    world.edit_config("[providers.backup", "[providers.renamed");
    world.start().await;
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(providers(&job), ["main", "main", "backup", "third"]);
    world.end().await;
}
