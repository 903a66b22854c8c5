//! Bad input gets a clear answer, starts nothing, and does not use up the key.

use serde_json::json;

use super::world::World;

async fn post_raw(world: &World, key: Option<&str>, content_type: Option<&str>, body: &str) -> super::world::Answer {
    let mut headers = Vec::new();
    headers.extend(key.map(|k| ("idempotency-key", k)));
    headers.extend(content_type.map(|t| ("content-type", t)));
    world.call("POST", "/v1/jobs", &headers, Some(body.to_owned())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_wrong_are_refused_one_by_one() {
    let world = World::new().await;
    let nested = format!(r#"{{"owner":"u","task":"plain","input":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let long_owner = format!(r#"{{"owner":"{}","task":"plain","input":1}}"#, "o".repeat(256));
    for (body, status, problem) in [
        ("", 400, "invalid-request"),
        ("{", 400, "invalid-request"),
        ("[]", 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{"a":1,"a":2}}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{"s":"\ud800"}}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{"s":"\u0000"}}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"surprise":1}"#, 400, "invalid-request"),
        (r#"{"owner":"","task":"plain","input":{}}"#, 400, "invalid-request"),
        (r#"{"owner":7,"task":"plain","input":{}}"#, 400, "invalid-request"),
        (r#"{"task":"plain","input":{}}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain"}"#, 400, "invalid-request"),
        (r#"{"owner":"u","input":{}}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"priority":101}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"priority":1.5}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"run_at":"tomorrow"}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"run_at":"9999-12-31T23:59:59Z"}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"deadline":"0000-12-31T23:59:59Z"}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"metadata":[]}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"plain","input":{},"provider":"backup"}"#, 400, "invalid-request"),
        (r#"{"owner":"u","task":"no-such","input":{}}"#, 404, "no-such-task"),
        (&nested, 400, "invalid-request"),
        (&long_owner, 400, "invalid-request"),
    ] {
        let answer = post_raw(&world, Some("k"), Some("application/json"), body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{body}");
    }
    let text = post_raw(&world, Some("k"), Some("text/plain"), "hello").await;
    assert_eq!((text.status, text.problem().as_str()), (415, "unsupported-media-type"));
    assert_eq!(world.submit("k", "plain", json!({})).await.status, 201, "none of them used up the key");
    let id = world.get("/v1/jobs").await.json()["jobs"][0]["id"].as_str().unwrap().to_owned();
    world.until_state(&id, "succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_wrong_are_refused_and_bare_and_quoted_are_one() {
    let world = World::new().await;
    let body = r#"{"owner":"u","task":"plain","input":{"do":{}}}"#;
    let missing = post_raw(&world, None, Some("application/json"), body).await;
    assert_eq!((missing.status, missing.problem().as_str()), (400, "idempotency-key-missing"));
    for key in ["\"\"", "a b", "a,b", "a\"b", "\"a\";p=1", &"a".repeat(256)] {
        let answer = post_raw(&world, Some(key), Some("application/json"), body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "idempotency-key-invalid"), "{key}");
    }
    let twice = [("content-type", "application/json"), ("idempotency-key", "a"), ("idempotency-key", "a")];
    let twice = world.call("POST", "/v1/jobs", &twice, Some(body.into())).await;
    assert_eq!((twice.status, twice.problem().as_str()), (400, "idempotency-key-invalid"));
    let bare = post_raw(&world, Some("k"), Some("application/json"), body).await;
    let quoted = post_raw(&world, Some("\"k\""), Some("application/json; charset=utf-8"), body).await;
    assert_eq!((bare.status, quoted.status), (201, 200));
    assert_eq!(bare.id(), quoted.id());
    assert_eq!(post_raw(&world, Some(&"a".repeat(255)), Some("application/json"), body).await.status, 201);
    for job in world.get("/v1/jobs").await.json()["jobs"].as_array().unwrap() {
        world.until_state(job["id"].as_str().unwrap(), "succeeded").await;
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_or_too_slow_is_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::with("max_body_bytes = 2000\nbody_timeout = \"300ms\"", "").await;
    let big = format!(r#"{{"owner":"u","task":"plain","input":"{}"}}"#, "x".repeat(3000));
    let answer = post_raw(&world, Some("k"), Some("application/json"), &big).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "body-too-large"));

    let mut slow = tokio::net::TcpStream::connect(world.url().trim_start_matches("http://")).await.unwrap();
    slow.write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nidempotency-key: k\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body-timeout"), "{answer}");

    // What says that it is too large is refused before it comes.
    let mut huge = tokio::net::TcpStream::connect(world.url().trim_start_matches("http://")).await.unwrap();
    huge.write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nidempotency-key: k\r\ncontent-length: 99999999999\r\nexpect: 100-continue\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    huge.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body-too-large"), "{answer}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_sends_its_headers_is_hung_up_on() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::with("header_timeout = \"300ms\"", "").await;
    let mut slow = tokio::net::TcpStream::connect(world.url().trim_start_matches("http://")).await.unwrap();
    slow.write_all(b"GET /healthz HT").await.unwrap();
    let mut answer = Vec::new();
    let read = slow.read_to_end(&mut answer);
    tokio::time::timeout(super::world::PATIENCE, read).await.expect("still open").unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_pages_methods_and_parameters_that_are_wrong_are_named() {
    let world = World::new().await;
    for (method, path, status, problem) in [
        ("GET", "/v1/jobs/job_00000000000000000000000000", 404, "no-such-job"),
        ("GET", "/v1/jobs/nonsense", 404, "no-such-job"),
        ("GET", "/v1/jobs?limit=0", 400, "invalid-request"),
        ("GET", "/v1/jobs?state=odd", 400, "invalid-request"),
        ("GET", "/v1/jobs?surprise=1", 400, "invalid-request"),
        ("GET", "/v1/jobs?owner=a&owner=b", 400, "invalid-request"),
        ("GET", "/v1/jobs?cursor=x", 400, "invalid-request"),
        ("GET", "/v1/attempts?state=odd", 400, "invalid-request"),
        ("GET", "/nowhere", 404, "not-found"),
        ("DELETE", "/v1/jobs", 405, "method-not-allowed"),
    ] {
        let answer = world.call(method, path, &[], None).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{method} {path}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_breaks_its_schema_is_refused_at_the_door() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("input.json");
    std::fs::write(&path, r#"{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}"#).unwrap();
    let more = format!("\n[tasks.checked]\nproviders = [\"main\"]\ninput_schema = {:?}\n", path.to_str().unwrap());
    let world = World::with("", &more).await;
    let bad = world.submit_body("k", json!({ "owner": "u", "task": "checked", "input": { "text": 7 } })).await;
    assert_eq!((bad.status, bad.problem().as_str()), (400, "invalid-input"));
    assert_eq!(bad.json()["pointer"], "/input/text");
    let good = world.submit_body("k", json!({ "owner": "u", "task": "checked", "input": { "text": "t" } })).await;
    assert_eq!(good.status, 201);
    world.until(&good.id(), "an end", |job| job["state"] != "queued" && job["state"] != "running").await;
    world.end().await;
}
