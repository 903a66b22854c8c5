//! A provider that refuses everything is not asked by every job first, where another one is proved; and
//! nobody waits for it.

use std::time::Duration;

use serde_json::json;

use super::world::World;

const TASK: &str = r#"
[tasks.proved]
providers = ["main", "backup"]
tries = 1
backoff = "10ms"
[tasks.proved.contract]
cases = "cases.toml"
"#;

/// Lets `main` refuse until its circuit is open.
async fn open_the_circuit(world: &World) {
    for n in 0..5 {
        let id = world.submit(&format!("open-{n}"), "plain", json!({ "status": 401 })).await.id();
        world.until_state(&id, "failed").await;
    }
    let metrics = world.get("/metrics").await.text;
    assert!(metrics.contains("onejob_provider_circuit_open{provider=\"main\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_with_a_proved_place_to_go_go_there_first() {
    let world = World::with("", TASK).await;
    let certificate = world.certify("proved", "backup").await;
    open_the_circuit(&world).await;
    let mut asked_first = 0;
    for n in 0..10 {
        let id = world.submit(&format!("k{n}"), "proved", json!({ "main": { "status": 401 } })).await.id();
        let job = world.until_state(&id, "succeeded").await;
        let first = &job["attempts"][0];
        if first["provider"] == "backup" {
            assert_eq!(first["certificate"], onejob::id::certificate_text(certificate));
        } else {
            asked_first += 1;
        }
    }
    assert!(asked_first <= 4, "at most one probe in a period: {asked_first}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_nowhere_else_to_go_is_not_held_up_and_its_answer_closes_the_circuit() {
    let world = World::with("", TASK).await;
    open_the_circuit(&world).await;
    let id = world.submit("unproved", "proved", json!({ "output": 1 })).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(job["attempts"][0]["provider"], "main");
    let metrics = world.get("/metrics").await.text;
    assert!(metrics.contains("onejob_provider_circuit_open{provider=\"main\"} 0"), "{metrics}");
    world.certify("proved", "backup").await;
    let id = world.submit("again", "proved", json!({ "output": 1 })).await.id();
    assert_eq!(world.until_state(&id, "succeeded").await["attempts"][0]["provider"], "main");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_finds_out_that_a_provider_answers_again() {
    let world = World::with("", TASK).await;
    world.certify("proved", "backup").await;
    open_the_circuit(&world).await;
    let mut number = 0;
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let id = world.submit(&format!("k{number}"), "proved", json!({ "output": 1 })).await.id();
        let job = world.until_state(&id, "succeeded").await;
        if job["attempts"][0]["provider"] == "main" {
            break;
        }
        number += 1;
        assert!(tokio::time::Instant::now() < end, "no job was ever sent there to see");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let id = world.submit("after", "proved", json!({ "output": 1 })).await.id();
    assert_eq!(world.until_state(&id, "succeeded").await["attempts"][0]["provider"], "main");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_an_open_circuit_sends_nothing_to_a_provider_that_proved_nothing() {
    let world = World::with("", TASK).await;
    open_the_circuit(&world).await;
    let id = world.submit("k", "proved", json!({ "main": { "status": 401 } })).await.id();
    let job = world.until_state(&id, "failed").await;
    assert_eq!(job["error"]["failover"], "no_verified_provider");
    assert_eq!(world.provider.executions_at(&id, "backup"), 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_no_connection_reaches_in_time_opens_its_circuit() {
    // It is never greeted: the handshake does not end before the attempt does.
    let hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tables = format!(
        r#"
[providers.hole]
kind = "http"
[providers.hole.request]
method = "POST"
url = "https://{}/do"
[providers.hole.response]
output = "{{{{ body.output }}}}"
[tasks.hole]
providers = ["hole"]
attempt_timeout = "100ms"
tries = 5
max_attempts = 5
backoff = "10ms"
"#,
        hole.local_addr().unwrap()
    );
    let world = World::with("", &tables).await;
    let id = world.submit("k", "hole", json!({})).await.id();
    let job = world.until_state(&id, "failed").await;
    let failure = &job["attempts"][4]["failure"];
    assert_eq!((&failure["class"], job["attempts"].as_array().unwrap().len()), (&json!("not_sent"), 5));
    assert!(failure["message"].as_str().unwrap().contains("no connection before"), "{job}");
    let metrics = world.get("/metrics").await.text;
    assert!(metrics.contains("onejob_provider_circuit_open{provider=\"hole\"} 1"), "{metrics}");
    world.end().await;
}
