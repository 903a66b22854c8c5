//! Cancel closes the slot at once; it never proves that nothing happened.

use serde_json::json;

use super::world::{World, states};

#[tokio::test(flavor = "multi_thread")]
async fn r7_a_cancelled_job_drops_what_comes_later() {
    let world = World::new().await;
    let what = json!({ "gate": "work", "output": "too late" });
    let id = world.submit("k", "patient", what.clone()).await.id();
    world.provider.reached(&id, 1).await;
    let cancelled = world.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (200, &json!("cancelled")));
    assert_eq!(cancelled.json()["safe_new_key"], false, "the work is under way");

    world.provider.open("work");
    let job = world.until(&id, "superseded", |job| states(job) == ["superseded"]).await;
    assert_eq!((&job["state"], &job["result"], &job["version"]), (&json!("cancelled"), &json!(null), &json!(1)));
    assert_eq!(world.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.status, 200, "repeated");
    let start = world.post(&format!("/v1/jobs/{id}/attempts"), json!({ "provider": "main", "force": true })).await;
    assert_eq!((start.status, start.problem().as_str()), (409, "job-closed"));
    let again = world.submit("k", "patient", what).await;
    assert_eq!((again.status, &again.json()["state"]), (200, &json!("cancelled")));
    assert_eq!(world.notices(&id).await, ["duplicate_effect", "duplicate"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_after_the_end_is_refused() {
    let world = World::new().await;
    let id = world.submit("k", "plain", json!({})).await.id();
    world.until_state(&id, "succeeded").await;
    let cancel = world.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!((cancel.status, cancel.problem().as_str()), (409, "job-closed"));
    let retry = world.post(&format!("/v1/jobs/{id}/retry"), json!({})).await;
    assert_eq!((retry.status, retry.problem().as_str()), (409, "job-closed"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_by_key_that_overtakes_its_post_stops_it() {
    let world = World::new().await;
    let cancel = world.post("/v1/jobs/cancel", json!({ "owner": "user_1", "idempotency_key": "k" })).await;
    assert_eq!((cancel.status, &cancel.json()["state"]), (200, &json!("cancelled")));
    let late = world.submit("k", "plain", json!({})).await;
    assert_eq!((late.status, &late.json()["state"], late.id()), (200, &json!("cancelled"), cancel.id()));
    assert_eq!(late.json()["task"], "plain", "the first post says what it was about");
    assert_eq!(world.submit("k", "plain", json!({ "other": 1 })).await.problem(), "idempotency-conflict");
    assert_eq!(world.provider.executions(&late.id()), 0);
    let again = world.post("/v1/jobs/cancel", json!({ "owner": "user_1", "idempotency_key": "k" })).await;
    assert_eq!((again.status, again.id()), (200, late.id()));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_job_is_cancelled_before_it_starts() {
    let world = World::new().await;
    let body = json!({ "owner": "u", "task": "plain", "input": { "do": {} }, "run_at": "2999-01-01T00:00:00Z" });
    let id = world.submit_body("k", body).await.id();
    let cancelled = world.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.json();
    assert_eq!((&cancelled["state"], &cancelled["safe_new_key"]), (&json!("cancelled"), &json!(true)));
    world.end().await;
}
