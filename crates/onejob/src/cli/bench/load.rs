//! The load: posts over HTTP/1.1 connections that are kept open, on threads of their own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::node::{Node, random_key};

/// How long what was posted may take to end after the load has.
const AFTERMATH: Duration = Duration::from_secs(60);

/// Whole lives over HTTP.
pub(super) struct Lives {
    pub(super) jobs: u64,
    pub(super) per_second: f64,
}

/// Latency from a post to the provider's receipt.
pub(super) struct Start {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// Submits per second of jobs that are not due.
pub(super) fn submits(node: &Node, connections: usize, time: Duration) -> Result<f64, String> {
    let text = "x".repeat(200);
    let body = move || {
        json!({ "owner": owner(), "task": "instant", "input": { "text": text }, "run_at": "2999-01-01T00:00:00Z" })
            .to_string()
    };
    let (posted, spent) = flood(node.address, connections, time, body)?;
    Ok(posted as f64 / spent.as_secs_f64())
}

/// Whole lives per second: posted, started, completed.
pub(super) fn lives(node: &Node, connections: usize, time: Duration) -> Result<Lives, String> {
    let text = "x".repeat(200);
    let began = Instant::now();
    let body = move || json!({ "owner": owner(), "task": "instant", "input": { "text": text } }).to_string();
    let (posted, _) = flood(node.address, connections, time, body)?;
    while node.succeeded() < posted {
        if began.elapsed() > time + AFTERMATH {
            return Err(format!("only {} of {posted} jobs ended", node.succeeded()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Lives { jobs: posted, per_second: posted as f64 / began.elapsed().as_secs_f64() })
}

/// Posts `rate` jobs per second, each at its own moment whether or not earlier ones were answered.
pub(super) fn starts(node: &Node, rate: u32, time: Duration) -> Result<Start, String> {
    node.receipts();
    let count = (f64::from(rate) * time.as_secs_f64()) as u64;
    let address = node.address;
    let sent = runtime()?.block_on(async move {
        let mut posts = tokio::task::JoinSet::new();
        let began = tokio::time::Instant::now();
        // Connections are made ahead: their set-up is not what is measured.
        let mut idle = Vec::new();
        for _ in 0..32 {
            idle.push(connect(address).await?);
        }
        let (back, mut returned) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..count {
            tokio::time::sleep_until(began + Duration::from_secs_f64(n as f64 / f64::from(rate))).await;
            idle.extend(std::iter::from_fn(|| returned.try_recv().ok()));
            let mut connection = match idle.pop() {
                Some(connection) => connection,
                None => connect(address).await?,
            };
            let back = back.clone();
            posts.spawn(async move {
                let body = json!({ "owner": "u", "task": "receiver", "input": { "n": n } }).to_string();
                let at = Instant::now();
                post(&mut connection, body).await?;
                // The one who waits for it may be done.
                drop(back.send(connection));
                Ok::<_, String>((n, at))
            });
        }
        let mut sent = vec![began.into_std(); count as usize];
        while let Some(post) = posts.join_next().await {
            let (n, at) = post.map_err(|error| error.to_string())??;
            sent[n as usize] = at;
        }
        Ok::<_, String>(sent)
    })?;
    let mut histogram = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    let began = Instant::now();
    let mut received = 0;
    while received < count {
        for (n, at) in node.receipts() {
            let Some(sent) = sent.get(n as usize) else { continue };
            let micros = at.saturating_duration_since(*sent).as_micros() as u64;
            histogram.record(micros).map_err(|error| error.to_string())?;
            received += 1;
        }
        if began.elapsed() > AFTERMATH {
            return Err(format!("only {received} of {count} requests reached the provider"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Start { p50_ms: ms(0.5), p99_ms: ms(0.99) })
}

/// Posts as fast as the connections go; says how many were acknowledged in which time.
fn flood(
    address: SocketAddr,
    connections: usize,
    time: Duration,
    body: impl Fn() -> String + Clone + Send + 'static,
) -> Result<(u64, Duration), String> {
    runtime()?.block_on(async move {
        let mut ready = Vec::new();
        for _ in 0..connections {
            ready.push(connect(address).await?);
        }
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for mut connection in ready {
            let body = body.clone();
            tasks.spawn(async move {
                let mut posted = 0;
                while began.elapsed() < time {
                    post(&mut connection, body()).await?;
                    posted += 1;
                }
                Ok::<u64, String>(posted)
            });
        }
        let mut posted = 0;
        while let Some(task) = tasks.join_next().await {
            posted += task.map_err(|error| error.to_string())??;
        }
        Ok((posted, began.elapsed()))
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

fn owner() -> String {
    format!("user_{}", fastrand::u32(0..10_000))
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream = tokio::net::TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // Its end shows at the sender.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn post(connection: &mut SendRequest<Full<Bytes>>, body: String) -> Result<(), String> {
    let request = Request::post("/v1/jobs")
        .header("host", "bench")
        .header("content-type", "application/json")
        .header("idempotency-key", random_key())
        .body(Full::from(body))
        .map_err(|error| error.to_string())?;
    connection.ready().await.map_err(|error| error.to_string())?;
    let response = connection.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    if status.as_u16() == 201 { Ok(()) } else { Err(format!("{status}: {}", String::from_utf8_lossy(&body))) }
}
