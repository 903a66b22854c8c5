//! Breakpoint 2: the same key with another input is refused, in every state (R2).

use serde_json::json;

use super::world::World;

/// Runs long enough to be met running on a busy machine, and becomes unknown soon enough.
const BRIEF: &str = "\n[tasks.brief]\nproviders = [\"main\"]\nattempt_timeout = \"3s\"\nlinger = \"20s\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn r2_the_same_key_with_another_input_is_refused_in_every_state() {
    let world = World::with("", BRIEF).await;
    let first = json!({ "gate": "work" });
    let id = world.submit("k", "brief", first.clone()).await.id();
    for state in ["running", "unknown", "succeeded"] {
        if state == "succeeded" {
            world.provider.open("work");
        }
        world.until_state(&id, state).await;
        let other = world.submit("k", "brief", json!({ "gate": "elsewhere" })).await;
        assert_eq!((other.status, other.problem().as_str()), (409, "idempotency-conflict"), "while {state}");
        assert_eq!(other.json()["job"], id.as_str());
        assert_eq!(other.json()["differs"], json!(["/input/do/gate"]), "says where, and no values");
        assert!(!other.text.contains("elsewhere"));
        let same = world.submit("k", "brief", first.clone()).await;
        assert_eq!((same.status, same.id()), (200, id.clone()), "while {state}");
    }
    let job = world.job(&id).await;
    assert_eq!(job["input"], json!({ "do": first }), "the intent never changes (R3)");
    assert_eq!(world.provider.executions(&id), 1, "a conflict starts nothing");
    assert_eq!(world.notices(&id).await.iter().filter(|kind| *kind == "conflict").count(), 3);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_task_and_pinned_provider_belong_to_the_intent_and_the_rest_does_not() {
    let world = World::new().await;
    let body =
        json!({ "owner": "u", "task": "race", "input": { "do": {} }, "priority": 3, "metadata": { "trace": "a" } });
    let id = world.submit_body("k", body.clone()).await.id();
    let with = |name: &str, value: serde_json::Value| {
        let mut other = body.clone();
        other[name] = value;
        other
    };
    assert_eq!(world.submit_body("k", with("task", json!("plain"))).await.json()["differs"], json!(["/task"]));
    assert_eq!(world.submit_body("k", with("provider", json!("backup"))).await.json()["differs"], json!(["/provider"]));
    assert_eq!(world.submit_body("k", with("metadata", json!({ "trace": "b" }))).await.id(), id);
    assert_eq!(world.submit_body("k", with("priority", json!(-3))).await.id(), id);
    assert_eq!(world.submit_body("k", with("deadline", json!("2020-01-01T00:00:00Z"))).await.id(), id);
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((&job["metadata"], &job["priority"]), (&json!({ "trace": "a" }), &json!(3)));
    world.end().await;
}
