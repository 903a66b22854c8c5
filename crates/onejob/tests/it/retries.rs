//! What certainly did not happen is tried again; what certainly failed ends as the policy says.

use serde_json::json;

use super::world::{World, states};

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_tried_again_after_the_delay_it_names() {
    let world = World::new().await;
    let what = json!({ "first": { "status": 503, "headers": { "retry-after": "1" } }, "output": "at last" });
    let id = world.submit("k", "plain", what).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(states(&job), ["failed", "succeeded"]);
    assert_eq!(job["attempts"][0]["failure"]["class"], "refused");
    assert_eq!(job["attempts"][0]["failure"]["status"], 503);
    let seen = world.provider.of(&id);
    assert!(seen[1].at - seen[0].at >= std::time::Duration::from_millis(950), "Retry-After wins over backoff");
    assert_ne!(seen[0].attempt, seen[1].attempt, "an attempt is never reused");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_is_not_tried_again() {
    let world = World::new().await;
    for status in [400, 413, 415, 422, 307] {
        let id = world.submit(&format!("k{status}"), "plain", json!({ "status": status })).await.id();
        let job = world.until_state(&id, "failed").await;
        assert_eq!(job["error"]["class"], "invalid", "{status}");
        assert_eq!(job["error"]["status"], status);
        assert_eq!(world.provider.executions(&id), 1);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tries_end_and_an_explicit_retry_opens_the_same_job_again() {
    let world = World::new().await;
    let id = world.submit("k", "plain", json!({ "status": 401 })).await.id();
    let job = world.until_state(&id, "failed").await;
    assert_eq!(states(&job), ["failed", "failed"], "two tries");
    assert_eq!((&job["error"]["class"], &job["version"]), (&json!("refused"), &json!(1)));
    assert_eq!(job["safe_new_key"], true, "a refusal did nothing");

    let again = world.submit("k", "plain", json!({ "status": 401 })).await;
    assert_eq!((again.status, again.id()), (200, id.clone()), "the key finds the failed job");
    assert_eq!(world.provider.executions(&id), 2, "and starts nothing");

    let retried = world.post(&format!("/v1/jobs/{id}/retry"), json!({})).await;
    assert_eq!((retried.status, retried.id()), (200, id.clone()));
    let job = world.until(&id, "failed again", |job| job["state"] == "failed" && states(job).len() == 4).await;
    assert_eq!(job["version"], 3, "failed, reopened, failed");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_the_contract_never_wins() {
    let more = r#"
[tasks.strict]
providers = ["main"]
backoff = "10ms"
tries = 2
[tasks.strict.output]
schema = "schema.json"
strict = true
rules = ["output.n < 10"]
"#;
    // The schema must be there before the world reads its configuration.
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("schema.json");
    std::fs::write(&path, schema.to_string()).unwrap();
    let world = World::with("", &more.replace("schema.json", path.to_str().unwrap())).await;
    for (n, output) in [json!({ "n": "one" }), json!({ "n": 1, "extra": 2 }), json!({ "n": 11 }), json!("text")]
        .into_iter()
        .enumerate()
    {
        let id = world.submit(&format!("bad{n}"), "strict", json!({ "output": output })).await.id();
        let job = world.until_state(&id, "failed").await;
        assert_eq!(job["error"]["class"], "broken_contract", "{output}");
        assert_eq!(
            (&job["result"], &job["completed_by"], &job["safe_new_key"]),
            (&json!(null), &json!(null), &json!(false))
        );
    }
    let id = world.submit("good", "strict", json!({ "first": { "output": {} }, "output": { "n": 9 } })).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!((states(&job), &job["result"]), (vec!["failed", "succeeded"], &json!({ "n": 9 })));
    let text = world.submit("text", "strict", json!({ "output": "{\"n\": 3}" })).await.id();
    assert_eq!(world.until_state(&text, "succeeded").await["result"], json!({ "n": 3 }), "text that is JSON is read");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_listens_is_not_sent_and_certain() {
    let more = r#"
[providers.dead]
kind = "http"
[providers.dead.request]
method = "POST"
url = "http://127.0.0.1:9/x"
body = {}
[tasks.nowhere]
providers = ["dead"]
backoff = "10ms"
tries = 2
"#;
    let world = World::with("", more).await;
    let id = world.submit("k", "nowhere", json!({})).await.id();
    let job = world.until_state(&id, "failed").await;
    assert_eq!(states(&job), ["failed", "failed"]);
    assert!(job["attempts"].as_array().unwrap().iter().all(|a| a["failure"]["class"] == "not_sent"));
    assert_eq!(job["safe_new_key"], true);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_without_a_certificate_nothing_fails_over() {
    let world = World::new().await;
    let what = json!({ "main": { "status": 429 }, "backup": { "output": "never asked" } });
    let id = world.submit("k", "race", what).await.id();
    let job = world.until_state(&id, "failed").await;
    assert_eq!(job["error"]["failover"], "no_verified_provider");
    assert!(world.provider.of(&id).iter().all(|seen| seen.provider == "main"));
    world.end().await;
}
