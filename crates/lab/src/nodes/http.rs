//! A caller: HTTP/1.1 over a connection that is kept, made anew after every silence.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::OWNER;

/// How long a caller waits before it asks somebody else. Nothing may depend on it: silence says nothing.
const SILENCE: Duration = Duration::from_secs(4);

/// An answer of a node.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub comes_back_after: bool,
    pub json: Value,
}

impl Answer {
    pub fn id(&self) -> String {
        self.json["id"].as_str().unwrap_or_else(|| panic!("no job: {self:?}")).to_owned()
    }

    /// The name of the problem that this answer is.
    pub fn problem(&self) -> &str {
        let kind = self.json["type"].as_str().unwrap_or_else(|| panic!("no problem: {self:?}"));
        kind.rsplit('/').next().unwrap_or(kind)
    }
}

/// Somebody who talks to one node.
pub struct Caller {
    port: u16,
    silence: Duration,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Caller {
    /// One that waits for as long as any answer may take.
    pub fn of(port: u16) -> Caller {
        Caller { port, silence: super::PATIENCE, connection: None }
    }

    /// One that soon asks somebody else.
    pub fn hasty(port: u16) -> Caller {
        Caller { port, silence: SILENCE, connection: None }
    }

    pub async fn get(&mut self, path: &str) -> Result<Answer, String> {
        self.call("GET", path, &[], None).await
    }

    pub async fn post(&mut self, path: &str, body: Value) -> Result<Answer, String> {
        self.call("POST", path, &[], Some(body)).await
    }

    /// Posts a job that tells the provider what to do.
    pub async fn post_job(&mut self, key: &str, what: &Value) -> Result<Answer, String> {
        let body = json!({ "owner": OWNER, "task": "plain", "input": { "do": what } });
        self.call("POST", "/v1/jobs", &[("idempotency-key", key)], Some(body)).await
    }

    /// As [`Caller::post_job`], and waits a second for the end.
    pub async fn post_and_wait(&mut self, key: &str, what: &Value) -> Result<Answer, String> {
        let body = json!({ "owner": OWNER, "task": "plain", "input": { "do": what } });
        self.call("POST", "/v1/jobs", &[("idempotency-key", key), ("prefer", "wait=1")], Some(body)).await
    }

    /// `Err` is silence: nobody knows whether the node did it.
    async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<Answer, String> {
        let connection = self.connection.take();
        let exchange = exchange(connection, self.port, method, path, headers, body);
        match tokio::time::timeout(self.silence, exchange).await {
            Ok(Ok((answer, connection))) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err("no answer".into()),
        }
    }
}

async fn exchange(
    connection: Option<SendRequest<Full<Bytes>>>,
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<Value>,
) -> Result<(Answer, SendRequest<Full<Bytes>>), String> {
    let text = |error: hyper::Error| error.to_string();
    let mut connection = match connection {
        Some(connection) => connection,
        None => {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(text)?;
            tokio::spawn(async move { drop(driver.await) });
            sender
        }
    };
    connection.ready().await.map_err(text)?;
    let mut request = Request::builder().method(method).uri(path).header("host", "nodes");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let response = connection.send_request(request.body(Full::new(bytes)).unwrap()).await.map_err(text)?;
    let status = response.status().as_u16();
    let comes_back_after = response.headers().contains_key("retry-after");
    let bytes = response.into_body().collect().await.map_err(text)?.to_bytes();
    let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Ok((Answer { status, comes_back_after, json }, connection))
}
