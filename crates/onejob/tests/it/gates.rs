//! Gates that no noisy neighbour moves: what a job costs the disk, counted and not timed.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::world::World;

const CONNECTIONS: u64 = 64;
const JOBS_EACH: u64 = 40;

/// Durable commits per completed job under 64 connections.
const MOST_COMMITS: f64 = 0.10;

/// Bytes written to the log per completed job with an input of 200 bytes. Measured: about half.
const MOST_LOG_BYTES: f64 = 8_000.0;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_share_their_commits_and_write_little() {
    let world = World::with(
        "",
        "\n[providers.instant]\nkind = \"simulated\"\nconcurrency = 64\n[tasks.instant]\nproviders = [\"instant\"]\n",
    )
    .await;
    let before = world.engine().store().work();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CONNECTIONS {
        let url = world.url();
        clients.spawn(async move {
            let stream = tokio::net::TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            for n in 0..JOBS_EACH {
                let body = json!({ "owner": "u", "task": "instant", "input": { "text": "x".repeat(200) } }).to_string();
                let request = hyper::Request::post("/v1/jobs")
                    .header("host", "x")
                    .header("content-type", "application/json")
                    .header("idempotency-key", format!("{client}-{n}-{:016x}", fastrand::u64(..)))
                    .header("prefer", "wait=20")
                    .body(Full::<Bytes>::from(body))
                    .unwrap();
                sender.ready().await.unwrap();
                let answer = sender.send_request(request).await.unwrap();
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                let job: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(job["state"], "succeeded", "{job}");
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let after = world.engine().store().work();
    let jobs = (CONNECTIONS * JOBS_EACH) as f64;
    let commits = (after.commits - before.commits) as f64 / jobs;
    let log_bytes = (after.log_bytes - before.log_bytes) as f64 / jobs;
    println!("{commits:.3} commits and {log_bytes:.0} bytes of log per completed job");
    assert!(commits <= MOST_COMMITS, "{commits:.3} commits per job");
    assert!(log_bytes <= MOST_LOG_BYTES, "{log_bytes:.0} bytes of log per job");
    world.end().await;
}
