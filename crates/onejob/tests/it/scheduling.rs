//! When attempts start: slots, priorities, `run_at`, deadlines.

use serde_json::json;

use super::world::{World, states};

const NARROW: &str = "\n[providers.main2]\nkind = \"http\"\nconcurrency = 1\n[providers.main2.request]\nmethod = \"POST\"\nurl = \"{url}/main2/do\"\nbody = { do = \"{{ input.do }}\" }\n[providers.main2.response]\noutput = \"{{ body.output }}\"\n[tasks.narrow]\nproviders = [\"main2\"]\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_never_has_more_in_flight_than_its_limit_and_the_urgent_go_first() {
    let world = World::with("", NARROW).await;
    let body = |priority: i32, gate: &str| json!({ "owner": "u", "task": "narrow", "input": { "do": { "gate": gate } }, "priority": priority });
    let first = world.submit_body("first", body(0, "first")).await.id();
    world.provider.reached(&first, 1).await;
    let low = world.submit_body("low", body(-1, "rest")).await.id();
    let high = world.submit_body("high", body(5, "rest")).await.id();
    let middle = world.submit_body("middle", body(0, "rest")).await.id();
    for id in [&low, &high, &middle] {
        assert_eq!(world.job(id).await["state"], "queued");
        assert_eq!(world.provider.executions(id), 0);
    }
    world.provider.open("rest");
    world.provider.open("first");
    let mut started = Vec::new();
    for id in [&high, &middle, &low] {
        let job = world.until_state(id, "succeeded").await;
        started.push(job["attempts"][0]["started_at"].as_str().unwrap().to_owned());
    }
    let mut sorted = started.clone();
    sorted.sort();
    assert_eq!(started, sorted, "high, then middle, then low");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overall_limit_holds_over_all_providers() {
    let world = World::with("max_in_flight = 1", "").await;
    let a = world.submit("a", "patient", json!({ "gate": "a" })).await.id();
    world.provider.reached(&a, 1).await;
    let b = world.submit("b", "race", json!({ "gate": "b" })).await.id();
    assert_eq!(world.job(&b).await["state"], "queued");
    world.provider.open("b");
    world.provider.open("a");
    world.until_state(&b, "succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_attempt_gives_its_slot_back() {
    let world = World::with(
        "",
        &NARROW.replace("[tasks.narrow]", "[tasks.narrow]\nattempt_timeout = \"200ms\"\nlinger = \"30s\""),
    )
    .await;
    let silent = world.submit("silent", "narrow", json!({ "gate": "never" })).await.id();
    let next = world.submit("next", "narrow", json!({})).await.id();
    world.until_state(&next, "succeeded").await;
    assert_eq!(world.job(&silent).await["state"], "unknown");
    world.provider.open("never");
    world.until_state(&silent, "succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_at_is_waited_for() {
    let world = World::new().await;
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(2_000);
    let body = json!({ "owner": "u", "task": "plain", "input": { "do": {} }, "run_at": at.to_string() });
    let id = world.submit_body("k", body).await.id();
    assert_eq!(world.job(&id).await["state"], "queued");
    let job = world.until_state(&id, "succeeded").await;
    let started: jiff::Timestamp = job["attempts"][0]["started_at"].as_str().unwrap().parse().unwrap();
    assert!(started.as_millisecond() >= at.as_millisecond(), "{started} is before {at}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_queued_job_and_makes_a_running_one_unknown() {
    let world = World::new().await;
    let deadline = (jiff::Timestamp::now() + jiff::SignedDuration::from_millis(2_500)).to_string();
    let queued = json!({ "owner": "u", "task": "plain", "input": { "do": {} }, "run_at": "2999-01-01T00:00:00Z", "deadline": deadline });
    let queued = world.submit_body("queued", queued).await.id();
    let running =
        json!({ "owner": "u", "task": "patient", "input": { "do": { "gate": "work" } }, "deadline": deadline });
    let running = world.submit_body("running", running).await.id();
    let past = json!({ "owner": "u", "task": "plain", "input": { "do": {} }, "deadline": "2020-01-01T00:00:00Z" });
    let past = world.submit_body("past", past).await.id();

    for id in [&queued, &past] {
        let job = world.until_state(id, "failed").await;
        assert_eq!((&job["error"]["class"], &job["safe_new_key"]), (&json!("deadline"), &json!(true)));
        assert_eq!(world.provider.executions(id), 0);
    }
    let job = world.until_state(&running, "unknown").await;
    assert_eq!(states(&job), ["unknown"]);
    world.provider.open("work");
    world.until_state(&running, "succeeded").await;
    world.end().await;
}
