//! Lists, health, metrics, the dry run of a fingerprint, limits.

use serde_json::json;

use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn lists_page_from_the_newest_to_the_oldest() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(world.submit(&format!("k{n}"), "plain", json!({})).await.id());
    }
    for id in &made {
        world.until_state(id, "succeeded").await;
    }
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world.get(&format!("/v1/jobs?limit=2&state=succeeded{cursor}")).await.json();
        listed.extend(page["jobs"].as_array().unwrap().iter().map(|j| j["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    made.reverse();
    assert_eq!(listed, made);
    let attempts = world.get("/v1/attempts?provider=main&limit=3").await.json();
    assert_eq!(attempts["attempts"].as_array().unwrap().len(), 3);
    assert!(attempts["next_cursor"].is_string());
    assert_eq!(attempts["attempts"][0]["task"], "plain");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_happened() {
    let world = World::new().await;
    let id = world.submit("k", "patient", json!({})).await.id();
    world.until_state(&id, "succeeded").await;
    world.submit("k", "patient", json!({})).await;
    world.submit("k", "patient", json!({ "other": 1 })).await;
    let unknown = world.submit("u", "patient", json!({ "status": 500 })).await.id();
    world.until_state(&unknown, "unknown").await;
    let text = world.get("/metrics").await.text;
    for line in [
        "onejob_jobs_total{outcome=\"created\"} 2",
        "onejob_jobs_total{outcome=\"succeeded\"} 1",
        "onejob_duplicates_total 1",
        "onejob_conflicts_total 1",
        "onejob_attempts_total{provider=\"main\",outcome=\"succeeded\"} 1",
        "onejob_attempts_total{provider=\"main\",outcome=\"unknown_status\"} 1",
        "onejob_attempts_unknown 1",
        "onejob_jobs_queued 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("onejob_store_commits ") && text.contains("onejob_start_seconds_count 2"), "{text}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fingerprint_can_be_tried_without_making_a_job() {
    let world = World::new().await;
    let a = world
        .post("/v1/fingerprint", json!({ "owner": "u", "task": "plain", "input": { "b": 1.0, "a": 2 } }))
        .await
        .json();
    let b = world.post("/v1/fingerprint", json!({ "task": "plain", "input": { "a": 2, "b": 1 } })).await.json();
    assert_eq!(a, b);
    assert_eq!((a["version"].as_u64(), a["fingerprint"].as_str().map(str::len)), (Some(1), Some(64)));
    assert_eq!(world.get("/v1/jobs").await.json()["jobs"], json!([]));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_open_requests_than_the_limit_are_turned_away_at_once() {
    let world = World::with("max_open_requests = 1", "").await;
    let id = world.submit("k", "patient", json!({ "gate": "work" })).await.id();
    let path = format!("/v1/jobs/{id}?wait=20s");
    // The first to come gets the one place, and that may be the other: then this one asks again.
    let held = async {
        loop {
            let answer = world.get(&path).await;
            if answer.status != 503 {
                return answer;
            }
        }
    };
    let turned_away = async {
        let end = tokio::time::Instant::now() + super::world::PATIENCE;
        loop {
            let answer = world.get("/v1/jobs").await;
            if answer.status == 503 {
                world.provider.open("work");
                return answer;
            }
            assert!(tokio::time::Instant::now() < end);
        }
    };
    let (held, turned_away) = tokio::join!(held, turned_away);
    assert_eq!(held.status, 200);
    assert_eq!((turned_away.problem().as_str(), turned_away.header("retry-after")), ("overloaded", Some("1")));
    assert_eq!(world.get("/healthz").await.status, 200, "health is asked of a busy node too");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_carries_a_request_id_and_keeps_the_callers() {
    let world = World::new().await;
    assert!(world.get("/healthz").await.header("x-request-id").is_some_and(|id| id.len() >= 16));
    let mine = world.call("GET", "/v1/jobs", &[("x-request-id", "trace-7")], None).await;
    assert_eq!(mine.header("x-request-id"), Some("trace-7"));
    let odd = world.call("GET", "/v1/jobs", &[("x-request-id", &"x".repeat(200))], None).await;
    assert_ne!(odd.header("x-request-id").map(str::len), Some(200));
    world.end().await;
}
