//! A racing job that is silent gets a second attempt at a provider that proved itself; the first to answer
//! wins (R6), the other is dropped (R7), and R4 stands.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{World, states};

const TASK: &str = r#"
[tasks.hedged]
providers = ["main", "backup"]
effects = "racing"
hedge_after = "100ms"
attempt_timeout = "20s"
linger = "20s"
tries = 1
[tasks.hedged.contract]
cases = "cases.toml"
[tasks.held]
providers = ["backup"]
attempt_timeout = "20s"
"#;

async fn world() -> World {
    World::with("", TASK).await
}

fn slow_and(backup: Value) -> Value {
    json!({ "main": { "gate": "slow", "output": "slow" }, "backup": backup })
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_silent_attempt_is_raced_only_at_a_provider_that_proved_itself() {
    let world = world().await;
    let id = world.submit("k", "hedged", slow_and(json!({ "output": "quick" }))).await.id();
    world.until(&id, "running", |job| states(job) == ["running"]).await;
    // Long enough for several looks.
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.provider.open("slow");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((&job["result"], world.provider.executions(&id)), (&json!("slow"), 1));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_r7_the_first_to_answer_wins_and_the_other_is_dropped() {
    let world = world().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", slow_and(json!({ "output": "quick" }))).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((&job["result"], &job["attempts"][1]["provider"]), (&json!("quick"), &json!("backup")));
    assert!(job["attempts"][1]["certificate"].is_string());
    world.provider.open("slow");
    let job = world.until(&id, "superseded", |job| states(job) == ["superseded", "succeeded"]).await;
    assert_eq!((&job["result"], &job["version"]), (&json!("quick"), &json!(1)));
    assert_eq!(world.notices(&id).await, ["duplicate_effect"]);
    assert!(world.get("/metrics").await.text.contains("onejob_hedges_total 1"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_the_first_attempt_may_still_win_the_race() {
    let world = world().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", slow_and(json!({ "gate": "backup", "output": "late" }))).await.id();
    world.provider.reached(&id, 2).await;
    world.provider.open("slow");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((&job["result"], &job["completed_by"]), (&json!("slow"), &job["attempts"][0]["id"]));
    world.provider.open("backup");
    world.until(&id, "superseded", |job| states(job) == ["succeeded", "superseded"]).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_before_the_silence_is_long_enough_costs_one_execution() {
    let world = world().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", json!({ "main": { "output": "quick" } })).await.id();
    world.until_state(&id, "succeeded").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_nothing_races_an_unknown_attempt() {
    let mut world = world().await;
    world.stop().await;
    world.edit_config(
        "hedge_after = \"100ms\"\nattempt_timeout = \"20s\"",
        "hedge_after = \"600ms\"\nattempt_timeout = \"300ms\"",
    );
    world.start().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", slow_and(json!({ "output": "quick" }))).await.id();
    world.until_state(&id, "unknown").await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(world.provider.executions(&id), 1);
    world.provider.open("slow");
    world.until_state(&id, "succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_of_a_race_with_one_failed_and_one_unknown_attempt_nothing_follows() {
    let mut world = world().await;
    world.stop().await;
    world.edit_config(
        "hedge_after = \"100ms\"\nattempt_timeout = \"20s\"",
        "hedge_after = \"100ms\"\nattempt_timeout = \"900ms\"",
    );
    world.edit_config("tries = 1\n[tasks.hedged.contract]", "tries = 3\n[tasks.hedged.contract]");
    world.start().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", slow_and(json!({ "gate": "backup", "status": 429 }))).await.id();
    world.provider.reached(&id, 2).await;
    world.until(&id, "one unknown", |job| states(job)[0] == "unknown").await;
    world.provider.open("backup");
    let job = world.until(&id, "one failed", |job| states(job)[1] != "running" && states(job)[1] != "starting").await;
    // The second may have fallen silent before its refusal was let through; either way nothing starts.
    assert!(["failed", "unknown"].contains(&states(&job)[1]), "{job}");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(world.provider.executions(&id), 2, "an attempt that nobody knows of may be alive");
    world.provider.open("slow");
    world.until_state(&id, "succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hedge_that_fails_leaves_the_first_attempt_alone() {
    let world = world().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", slow_and(json!({ "status": 429 }))).await.id();
    let job = world.until(&id, "a failed hedge", |job| states(job) == ["running", "failed"]).await;
    assert_eq!(job["state"], "running");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(world.provider.executions(&id), 2, "its one try there is used up");
    world.provider.open("slow");
    assert_eq!(world.until_state(&id, "succeeded").await["result"], "slow");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_that_fails_after_the_hedge_started_leaves_the_race_to_it() {
    let world = world().await;
    world.certify("hedged", "backup").await;
    let what = json!({ "main": { "gate": "slow", "status": 429 }, "backup": { "gate": "backup", "output": "second" } });
    let id = world.submit("k", "hedged", what).await.id();
    world.provider.reached(&id, 2).await;
    world.provider.open("slow");
    let job = world.until(&id, "the first failed", |job| states(job)[0] == "failed").await;
    assert_eq!(job["state"], "running");
    world.provider.open("backup");
    assert_eq!(world.until_state(&id, "succeeded").await["result"], "second");
    assert_eq!(world.provider.executions(&id), 2);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hedge_waits_for_a_slot_as_long_as_the_first_attempt_is_silent() {
    let mut world = world().await;
    world.stop().await;
    world.edit_config("[providers.backup]", "[providers.backup]\nconcurrency = 1");
    world.start().await;
    world.certify("hedged", "backup").await;
    let hold = world.submit("hold", "held", json!({ "gate": "slot" })).await.id();
    world.provider.reached(&hold, 1).await;
    let id = world.submit("k", "hedged", slow_and(json!({ "output": "quick" }))).await.id();
    let given_up = world.submit("k2", "hedged", json!({ "main": { "gate": "soon" } })).await.id();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(world.provider.executions_at(&id, "backup"), 0, "no slot is free");
    world.provider.open("soon");
    world.until_state(&given_up, "succeeded").await;
    world.provider.open("slot");
    assert_eq!(world.until_state(&id, "succeeded").await["result"], "quick");
    assert_eq!(world.provider.executions(&given_up), 1, "it was answered while its hedge waited");
    world.provider.open("slow");
    world.until(&id, "superseded", |job| states(job)[0] == "superseded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_starts_no_hedge() {
    let mut world = world().await;
    world.stop().await;
    world.edit_config("hedge_after = \"100ms\"", "hedge_after = \"900ms\"");
    world.start().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", json!({ "main": { "gate": "slow" } })).await.id();
    world.provider.reached(&id, 1).await;
    let stopped = world.begin_stop();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    world.provider.open("slow");
    stopped.await.unwrap();
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attempts_of_a_job_are_limited_hedges_among_them() {
    let mut world = world().await;
    world.stop().await;
    world.edit_config("tries = 1\n[tasks.hedged.contract]", "tries = 1\nmax_attempts = 1\n[tasks.hedged.contract]");
    world.start().await;
    world.certify("hedged", "backup").await;
    let id = world.submit("k", "hedged", slow_and(json!({ "output": "quick" }))).await.id();
    world.until(&id, "running", |job| states(job) == ["running"]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.provider.executions(&id), 1);
    world.provider.open("slow");
    world.until_state(&id, "succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_job_is_not_raced() {
    let world = world().await;
    world.certify("hedged", "backup").await;
    let what = slow_and(json!({ "output": "quick" }));
    let body = json!({ "owner": "u", "task": "hedged", "provider": "main", "input": { "do": what } });
    let id = world.submit_body("k", body).await.id();
    world.until(&id, "running", |job| states(job) == ["running"]).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    world.provider.open("slow");
    world.until_state(&id, "succeeded").await;
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_certificate_that_is_taken_back_while_a_hedge_waits_starts_nothing() {
    let mut world = world().await;
    world.stop().await;
    world.edit_config("[providers.backup]", "[providers.backup]\nconcurrency = 1");
    world.start().await;
    let certificate = world.certify("hedged", "backup").await;
    let hold = world.submit("hold", "held", json!({ "gate": "slot" })).await.id();
    world.provider.reached(&hold, 1).await;
    let id = world.submit("k", "hedged", slow_and(json!({ "output": "quick" }))).await.id();
    world.until(&id, "running", |job| states(job) == ["running"]).await;
    // By now it has looked for a slot; it goes on with what it read.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(world.engine().suspend(certificate, "by hand".into()).await.unwrap());
    world.provider.open("slot");
    world.until_state(&hold, "succeeded").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    world.provider.open("slow");
    world.until_state(&id, "succeeded").await;
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}
