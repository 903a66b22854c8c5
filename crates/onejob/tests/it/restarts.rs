//! A node stops politely, or has died: nothing is repeated, nothing is lost (R10, R12).

use serde_json::json;

use super::world::{World, states};

#[tokio::test(flavor = "multi_thread")]
async fn a_polite_stop_lets_what_is_in_flight_finish_and_takes_no_new_work() {
    let mut world = World::new().await;
    let id = world.submit("k", "patient", json!({ "gate": "work" })).await.id();
    world.provider.reached(&id, 1).await;
    let stopping = world.begin_stop();
    let end = tokio::time::Instant::now() + super::world::PATIENCE;
    while world.get("/readyz").await.status == 200 {
        assert!(tokio::time::Instant::now() < end);
    }
    let refused = world.submit("new", "plain", json!({})).await;
    assert_eq!((refused.status, refused.problem().as_str()), (503, "overloaded"));
    assert_eq!(refused.json()["retry_with_same_key"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    world.provider.open("work");
    stopping.await.unwrap();
    world.stop().await;
    world.start().await;
    let job = world.job(&id).await;
    assert_eq!((&job["state"], world.provider.executions(&id)), (&json!("succeeded"), 1));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_what_outlasts_the_grace_is_unknown_and_is_not_repeated() {
    let mut world = World::with("", "").await;
    world.edit_config("shutdown_grace = \"2s\"", "shutdown_grace = \"100ms\"");
    world.stop().await;
    world.start().await;
    let id = world.submit("k", "patient", json!({ "gate": "never" })).await.id();
    world.provider.reached(&id, 1).await;
    world.stop().await;
    world.start().await;
    let job = world.job(&id).await;
    assert_eq!((states(&job), &job["attempts"][0]["cause"]), (vec!["unknown"], &json!("node_died")));
    assert_eq!(world.submit("k", "patient", json!({ "gate": "never" })).await.id(), id, "R12: the key still finds it");
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_jobs_of_an_earlier_run_are_started() {
    let mut world = World::new().await;
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(2_000);
    let body = json!({ "owner": "u", "task": "plain", "input": { "do": {} }, "run_at": at.to_string() });
    let id = world.submit_body("k", body).await.id();
    world.stop().await;
    world.start().await;
    world.until_state(&id, "succeeded").await;
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_task_is_gone_says_so_and_comes_back_with_the_task() {
    let mut world = World::with("", "\n[tasks.gone]\nproviders = [\"main\"]\n").await;
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(2_000);
    let body = json!({ "owner": "u", "task": "gone", "input": { "do": {} }, "run_at": at.to_string() });
    let id = world.submit_body("k", body).await.id();
    world.stop().await;
    world.edit_config("[tasks.gone]", "[tasks.renamed]");
    world.start().await;
    let job = world.until_state(&id, "failed").await;
    assert!(job["error"]["message"].as_str().unwrap().contains("not configured"), "{}", job["error"]);
    assert_eq!((&job["safe_new_key"], world.provider.executions(&id)), (&json!(true), 0));
    world.stop().await;
    world.edit_config("[tasks.renamed]", "[tasks.gone]");
    world.start().await;
    world.post(&format!("/v1/jobs/{id}/retry"), json!({})).await;
    world.until_state(&id, "succeeded").await;
    world.end().await;
}
