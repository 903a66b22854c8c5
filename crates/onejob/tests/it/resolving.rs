//! An operator's word, and a declared policy, end what nobody knows.

use serde_json::json;

use super::world::{World, states};

async fn unknown(world: &World, key: &str, then: &str) -> (String, String) {
    let id = world.submit(key, "plain", json!({ "first": { "status": 500 }, "output": then })).await.id();
    let job = world.until_state(&id, "unknown").await;
    (id, job["attempts"][0]["id"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_did_not_happen_frees_the_job_for_its_next_attempt() {
    let world = World::new().await;
    let (id, attempt) = unknown(&world, "k", "second").await;
    let path = format!("/v1/attempts/{attempt}/resolve");
    let resolved = world.post(&path, json!({ "outcome": "failed", "reason": "looked: nothing there" })).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((states(&job), &job["result"]), (vec!["failed", "succeeded"], &json!("second")));
    assert_eq!(job["attempts"][0]["failure"]["class"], "not_executed");
    assert_eq!(job["attempts"][0]["resolution"]["by"], "operator");
    assert_eq!(job["attempts"][0]["resolution"]["reason"], "looked: nothing there");
    let again = world.post(&path, json!({ "outcome": "succeeded", "result": 3, "reason": "x" })).await;
    assert_eq!((again.status, again.problem().as_str()), (409, "attempt-closed"), "R8");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_did_happen_fills_the_slot_with_the_operators_result() {
    let world = World::new().await;
    let (id, attempt) = unknown(&world, "k", "never").await;
    let path = format!("/v1/attempts/{attempt}/resolve");
    let resolved =
        world.post(&path, json!({ "outcome": "succeeded", "result": { "seen": 1 }, "reason": "found it" })).await;
    assert_eq!((resolved.status, &resolved.json()["state"]), (200, &json!("succeeded")));
    let job = world.job(&id).await;
    assert_eq!((&job["result"], &job["completed_by"]), (&json!({ "seen": 1 }), &json!(attempt)));
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_attempt_is_fenced_and_the_job_goes_on() {
    let world = World::new().await;
    let what = json!({ "first": { "gate": "work", "output": "late" }, "output": "second" });
    let id = world.submit("k", "plain", what).await.id();
    let job = world.until_state(&id, "unknown").await;
    let attempt = job["attempts"][0]["id"].as_str().unwrap();
    let resolved = world
        .post(
            &format!("/v1/attempts/{attempt}/resolve"),
            json!({ "outcome": "abandoned", "reason": "machine is gone" }),
        )
        .await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    world.until_state(&id, "succeeded").await;
    world.provider.open("work");
    world.until(&id, "late word noted", |_| true).await;
    let end = tokio::time::Instant::now() + super::world::PATIENCE;
    while !world.notices(&id).await.contains(&"duplicate_effect".to_owned()) {
        assert!(tokio::time::Instant::now() < end, "the late word was not noted");
        tokio::task::yield_now().await;
    }
    let job = world.job(&id).await;
    assert_eq!((states(&job), &job["result"]), (vec!["abandoned", "succeeded"], &json!("second")), "R8: never changes");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_policy_gives_an_attempt_up() {
    let more =
        "\n[tasks.giveup]\nproviders = [\"main\"]\nlinger = \"0s\"\non_unknown = { abandon_after = \"300ms\" }\n";
    let world = World::with("", more).await;
    let id = world.submit("k", "giveup", json!({ "first": { "status": 500 }, "output": "second" })).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(states(&job), ["abandoned", "succeeded"]);
    assert_eq!(job["attempts"][0]["resolution"]["by"], "policy");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_words_are_refused_and_change_nothing() {
    let world = World::new().await;
    let (id, attempt) = unknown(&world, "k", "second").await;
    let path = format!("/v1/attempts/{attempt}/resolve");
    for body in [
        json!({ "outcome": "failed" }),
        json!({ "outcome": "failed", "reason": "" }),
        json!({ "outcome": "succeeded", "reason": "no result" }),
        json!({ "outcome": "failed", "reason": "x", "result": 1 }),
        json!({ "outcome": "maybe", "reason": "x" }),
        json!({ "outcome": "failed", "reason": "x", "surprise": 1 }),
    ] {
        let refused = world.post(&path, body.clone()).await;
        assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"), "{body}");
    }
    assert_eq!(world.job(&id).await["state"], "unknown");
    let none = world
        .post("/v1/attempts/att_00000000000000000000000000/resolve", json!({ "outcome": "failed", "reason": "x" }))
        .await;
    assert_eq!((none.status, none.problem().as_str()), (404, "no-such-attempt"));
    world.end().await;
}
