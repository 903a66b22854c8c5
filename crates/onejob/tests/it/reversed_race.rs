//! Breakpoint 4: reversed order, the second to return loses (R6, R7).

use serde_json::json;

use super::world::{World, states};

#[tokio::test(flavor = "multi_thread")]
async fn r6_r7_of_two_racing_attempts_the_second_to_return_loses() {
    let world = World::new().await;
    let what = json!({ "main": { "gate": "slow", "output": "slow primary" }, "backup": { "gate": "quick", "output": "quick fallback" } });
    let id = world.submit("k", "race", what).await.id();
    world.until(&id, "running", |job| states(job) == ["running"]).await;

    let second = world.post(&format!("/v1/jobs/{id}/attempts"), json!({ "provider": "backup", "force": true })).await;
    assert_eq!(second.status, 201, "{second:?}");
    world.provider.reached(&id, 2).await;

    world.provider.open("quick");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((&job["result"], &job["completed_by"]), (&json!("quick fallback"), &second.json()["id"]));

    world.provider.open("slow");
    let job = world.until(&id, "superseded", |job| states(job) == ["superseded", "succeeded"]).await;
    assert_eq!((&job["result"], &job["version"]), (&json!("quick fallback"), &json!(1)), "the loser touched the slot");
    let mut without_input = job.clone();
    without_input["input"] = json!(null);
    assert!(!without_input.to_string().contains("slow primary"), "the loser's result is not kept");
    assert_eq!(world.notices(&id).await, ["duplicate_effect"], "somebody may owe a refund");
    let metrics = world.get("/metrics").await.text;
    for (provider, outcome) in [("backup", "succeeded"), ("main", "superseded")] {
        let line = format!("onejob_attempts_total{{provider=\"{provider}\",outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("{provider=\"main\",outcome=\"succeeded\"}"), "the loser is no success\n{metrics}");
    let notice = world.get(&format!("/v1/jobs/{id}/notices")).await;
    assert!(!notice.text.contains("slow primary"), "only its digest and size are");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_an_exclusive_task_gets_no_second_attempt_while_the_first_runs() {
    let world = World::new().await;
    let id = world.submit("k", "patient", json!({ "gate": "work" })).await.id();
    world.provider.reached(&id, 1).await;
    let second = world.post(&format!("/v1/jobs/{id}/attempts"), json!({ "provider": "main", "force": true })).await;
    assert_eq!((second.status, second.problem().as_str()), (409, "attempt-in-flight"));
    world.provider.open("work");
    world.until_state(&id, "succeeded").await;
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}
