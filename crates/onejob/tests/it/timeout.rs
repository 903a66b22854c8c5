//! Breakpoint 3: a timeout is unknown and blocks; the late answer settles it (R4, R5).

use serde_json::json;

use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn r5_a_timeout_is_unknown_blocks_and_the_late_answer_wins() {
    let world = World::new().await;
    let id = world.submit("k", "plain", json!({ "gate": "work", "output": "late" })).await.id();

    let job = world.until_state(&id, "unknown").await;
    let attempt = job["attempts"][0].clone();
    assert_eq!((&attempt["state"], &attempt["cause"]), (&json!("unknown"), &json!("timeout")));
    assert_eq!(job["safe_new_key"], false, "a new key might do it twice");

    for force in [false, true] {
        let again = world.post(&format!("/v1/jobs/{id}/attempts"), json!({ "provider": "main", "force": force })).await;
        assert_eq!((again.status, again.problem().as_str()), (409, "attempt-in-flight"), "R4: silence blocks");
        assert_eq!((&again.json()["attempt"], &again.json()["state"]), (&attempt["id"], &json!("unknown")));
    }
    let retry = world.post(&format!("/v1/jobs/{id}/retry"), json!({})).await;
    assert_eq!(retry.problem(), "attempt-in-flight");
    assert_eq!(world.get("/v1/attempts?state=unknown").await.json()["attempts"][0]["job_id"], id.as_str());

    world.provider.open("work");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((&job["result"], &job["completed_by"]), (&json!("late"), &attempt["id"]));
    assert_eq!(job["attempts"][0]["resolution"]["by"], "late_answer");
    assert_eq!(world.provider.executions(&id), 1, "one execution, however long it took");
    assert_eq!(world.notices(&id).await, ["unknown", "resolution"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_a_late_failure_is_evidence_too_and_the_job_goes_on() {
    let world = World::new().await;
    let id = world
        .submit("k", "plain", json!({ "first": { "gate": "work", "status": 429 }, "output": "second" }))
        .await
        .id();
    world.until_state(&id, "unknown").await;
    world.provider.open("work");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(job["attempts"][0]["failure"]["class"], "refused");
    assert_eq!(job["attempts"][0]["resolution"]["by"], "late_answer");
    assert_eq!(job["result"], "second");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_answers_that_say_nothing_about_the_work_are_unknown() {
    let world = World::new().await;
    for (n, status) in [500, 502, 503, 504, 408, 409, 302].into_iter().enumerate() {
        let id = world.submit(&format!("k{n}"), "patient", json!({ "status": status })).await.id();
        let job = world.until_state(&id, "unknown").await;
        assert_eq!(job["attempts"][0]["cause"], "status", "{status}");
        assert_eq!(world.provider.executions(&id), 1, "{status} was tried again");
    }
    let id = world.submit("raw", "patient", json!({ "raw": "<html>oops" })).await.id();
    let job = world.until_state(&id, "unknown").await;
    assert_eq!(job["attempts"][0]["cause"], "cut_short");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_a_start_beside_an_attempt_is_refused_though_no_slot_is_free() {
    let more = r#"
[providers.narrow]
kind = "http"
concurrency = 1
[providers.narrow.request]
url = "{url}/narrow/do"
body = { do = "{{ input.do }}" }
[providers.narrow.response]
output = "{{ body.output }}"
[tasks.narrow]
providers = ["narrow"]
"#;
    let world = World::with("", more).await;
    let id = world.submit("k", "narrow", json!({ "gate": "g" })).await.id();
    world.provider.reached(&id, 1).await;
    // The only slot is held by the very attempt that forbids another one.
    let again = world.post(&format!("/v1/jobs/{id}/attempts"), json!({ "force": true })).await;
    assert_eq!((again.status, again.problem().as_str()), (409, "attempt-in-flight"));
    world.provider.open("g");
    world.until_state(&id, "succeeded").await;
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}
