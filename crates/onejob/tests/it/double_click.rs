//! Breakpoint 1: a double click makes one job and one execution (R1).

use serde_json::json;

use super::world::{World, states};

#[tokio::test(flavor = "multi_thread")]
async fn r1_a_double_click_makes_one_job_and_one_execution() {
    let world = World::new().await;
    let click = || world.submit("click-8f3a", "plain", json!({ "gate": "work" }));
    let (a, b, c, d) = tokio::join!(click(), click(), click(), click());
    world.provider.open("work");

    let answers = [a, b, c, d];
    let id = answers[0].id();
    assert!(answers.iter().all(|a| a.id() == id), "every click gets the same job");
    let made: Vec<_> = answers.iter().filter(|a| a.status == 201).collect();
    assert_eq!(made.len(), 1, "one 201");
    assert_eq!(made[0].header("idempotent-replayed"), Some("false"));
    assert_eq!(
        answers.iter().filter(|a| a.status == 200 && a.header("idempotent-replayed") == Some("true")).count(),
        3
    );
    assert!(answers.iter().all(|a| a.header("location") == Some(&format!("/v1/jobs/{id}"))));

    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(states(&job), ["succeeded"]);
    assert_eq!(job["completed_by"], job["attempts"][0]["id"]);
    assert_eq!(job["duplicates"], 3);
    assert_eq!(world.provider.executions(&id), 1, "one execution at the provider");

    let again = world.submit("click-8f3a", "plain", json!({ "gate": "work" })).await;
    assert_eq!((again.status, again.id()), (200, id.clone()), "a click after the end finds the result");
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_owners_do_not_share_keys() {
    let world = World::new().await;
    let of = |owner: &str| json!({ "owner": owner, "task": "plain", "input": { "do": {} } });
    let (a, b) = tokio::join!(world.submit_body("k", of("alice")), world.submit_body("k", of("bob")));
    assert_eq!((a.status, b.status), (201, 201));
    assert_ne!(a.id(), b.id());
    let found = world.get("/v1/jobs?owner=alice&idempotency_key=k").await.json();
    assert_eq!(found["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(found["jobs"][0]["id"], a.json()["id"]);
    for id in [a.id(), b.id()] {
        world.until_state(&id, "succeeded").await;
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_job_and_attempt_travel_with_every_request_and_the_clients_key_does_not() {
    let world = World::with("", "\n[providers.main.idempotency]\nheader = \"Idempotency-Key\"\nttl = \"1h\"\n").await;
    let id = world.submit("the-clients-own-key", "plain", json!({})).await.id();
    let job = world.until_state(&id, "succeeded").await;
    let seen = &world.provider.of(&id)[0];
    assert_eq!(seen.attempt, job["attempts"][0]["id"]);
    assert_eq!(seen.key.as_deref(), job["attempts"][0]["id"].as_str(), "the provider's key is the attempt's id");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_its_job_running() {
    use tokio::io::AsyncWriteExt;
    let world = World::new().await;
    let body = json!({ "owner": "user_1", "task": "plain", "input": { "do": {} } }).to_string();
    let request = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nidempotency-key: k\r\nprefer: wait=10\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(world.url().trim_start_matches("http://")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    // Whether the server had read it before we hung up is a race: the same key says what became of it.
    drop(stream);
    let id = world.submit_body("k", json!({ "owner": "user_1", "task": "plain", "input": { "do": {} } })).await.id();
    let job = world.until_state(&id, "succeeded").await;
    assert_eq!(states(&job), ["succeeded"]);
    assert_eq!(world.provider.executions(&id), 1);
    world.end().await;
}
