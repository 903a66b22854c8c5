//! Waiting gives the end, the word that nobody knows, or the present.

use std::time::{Duration, Instant};

use serde_json::json;

use super::world::World;

fn body() -> serde_json::Value {
    json!({ "owner": "u", "task": "plain", "input": { "do": { "gate": "work" } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_job_with_unknown_or_with_time() {
    let world = World::new().await;
    let headers =
        [("content-type", "application/json"), ("idempotency-key", "k"), ("prefer", "respond-async, wait=20")];
    let answer = world.call("POST", "/v1/jobs", &headers, Some(body().to_string())).await;
    assert_eq!((answer.status, &answer.json()["state"]), (201, &json!("unknown")), "unknown ends the wait");

    let id = answer.id();
    world.provider.open("work");
    let end = world.get(&format!("/v1/jobs/{id}?wait=20s")).await;
    world.until_state(&id, "succeeded").await;
    assert!(["unknown", "succeeded"].contains(&end.json()["state"].as_str().unwrap()));

    let slow = world.submit("slow", "patient", json!({ "gate": "other" })).await.id();
    let began = Instant::now();
    let present = world.get(&format!("/v1/jobs/{slow}?wait=300ms")).await;
    assert_eq!((present.status, &present.json()["state"]), (200, &json!("running")));
    assert!(began.elapsed() >= Duration::from_millis(290));

    let path = format!("/v1/jobs/{slow}?wait=20s");
    let (end, ()) = tokio::join!(world.get(&path), async { world.provider.open("other") });
    assert_eq!(end.json()["state"], "succeeded");
    assert_eq!(world.get(&format!("/v1/jobs/{slow}?wait=soon")).await.problem(), "invalid-request");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_wait_for_one_job_and_all_are_told() {
    let world = World::new().await;
    let id = world.submit("k", "patient", json!({ "gate": "work" })).await.id();
    world.provider.reached(&id, 1).await;
    let path = format!("/v1/jobs/{id}?wait=20s");
    let waits = async { tokio::join!(world.get(&path), world.get(&path), world.get(&path)) };
    let ((a, b, c), ()) = tokio::join!(waits, async { world.provider.open("work") });
    for answer in [a, b, c] {
        assert_eq!(answer.json()["state"], "succeeded");
    }
    world.end().await;
}
