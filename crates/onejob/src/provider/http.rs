//! Any HTTP API, as its definition says: renders the request, sends it once, reads the answer.
//!
//! The connections are our own, over hyper's HTTP/1.1 machine, because two things must hold that
//! HTTP clients do not promise: nothing is ever sent twice, and at every moment it is known whether
//! a byte of the request may have left. Redirects are not followed and proxies are not used.

mod answer;
mod connect;
mod pool;
mod reach;
mod request;
mod wire;
mod words;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use onejob_core::{Failure, Meaning, Observation, Override, Phase, Seen, meaning_of};
use serde_json::Value;

use super::{Answer, CallInput, Progress, Trouble};
use crate::config::HttpDefinition;
use crate::contract::Breach;
use crate::json::{self, Duplicates};
use crate::template::Template;
use connect::Connector;
use pool::{Connection, Pool};
pub use reach::Reach;
pub use request::PreparedRequest;
use request::Renderer;
use wire::Sent;
use words::Redactor;

/// How much of an answer outside 2xx is read, in bytes: it is only quoted.
const LONGEST_ERROR_BODY: usize = 64 << 10;

/// How long the body of an answer outside 2xx is awaited. Its status has said everything.
const ERROR_BODY_PATIENCE: Duration = Duration::from_secs(2);

/// A provider of kind `http`, ready to be called.
pub struct HttpProvider {
    renderer: Renderer,
    reader: answer::Reader,
    outcomes: Vec<Override>,
    max_answer_bytes: usize,
    redactor: Redactor,
    connector: Connector,
    pool: Arc<Pool>,
}

/// A call that ended without a whole answer.
struct Lost {
    observation: Observation,
    status: Option<u16>,
    message: String,
    /// Of a whole answer.
    seen: Seen,
    breach: Option<Breach>,
}

/// An answer, whole or not as `Lost` says.
struct Whole {
    status: u16,
    headers: hyper::HeaderMap,
    body: Bytes,
}

impl HttpProvider {
    /// Makes a provider ready. `concurrency` bounds the connections that wait for reuse.
    ///
    /// # Errors
    ///
    /// A sentence for people: a CA file that is none, a name that no template of this kind sees.
    pub fn open(name: &str, concurrency: usize, definition: &HttpDefinition) -> Result<HttpProvider, String> {
        Ok(HttpProvider {
            renderer: Renderer::open(name, definition)?,
            reader: answer::Reader::open(definition),
            outcomes: definition.outcomes.clone(),
            max_answer_bytes: definition.max_answer_bytes,
            redactor: Redactor::new(definition.secrets.values()),
            connector: Connector::open(definition)?,
            pool: Pool::new(concurrency),
        })
    }

    /// Renders the request.
    ///
    /// # Errors
    ///
    /// A certain failure of class `invalid`: nothing was sent.
    pub fn prepare(&self, call: &CallInput) -> Result<PreparedRequest, Failure> {
        self.renderer.prepare(call).map_err(|message| Failure {
            message: self.redactor.sentence(&message).into(),
            ..Failure::from(onejob_core::FailureClass::Invalid)
        })
    }

    /// Posts JSON to a page beside the one that does the work, and gives the JSON that it answers with.
    ///
    /// # Errors
    ///
    /// A sentence without secrets.
    pub async fn ask_beside(
        &self,
        call: &CallInput,
        url: &Template,
        sibling: Option<&str>,
        body: Value,
    ) -> Result<Value, Trouble> {
        let said = |message: &str| self.redactor.sentence(message);
        let request = self.renderer.prepare_beside(call, url, sibling, body).map_err(|message| said(&message))?;
        let whole =
            self.exchange(&request, &Progress::new()).await.map_err(|lost| Trouble::Away(said(&lost.message)))?;
        if !(200..300).contains(&whole.status) {
            let why = said(&format!("status {}: {}", whole.status, words::of_status(whole.status, &whole.body)));
            return Err(if is_away(whole.status) { Trouble::Away(why) } else { Trouble::Wrong(why) });
        }
        json::parse(&whole.body, Duplicates::LastStands, json::MAX_DEPTH)
            .map_err(|_| Trouble::Wrong("the answer is no JSON".to_owned()))
    }

    /// Sends the request once and reads the answer, however long it takes. Dropping the future
    /// closes the connection; what `progress` says then stays true.
    pub async fn send(&self, request: PreparedRequest, progress: &Progress) -> Answer {
        match self.exchange(&request, progress).await {
            Ok(whole) if (200..300).contains(&whole.status) => {
                self.reader.read(&whole, &request.scope).unwrap_or_else(|lost| self.broken(lost, None))
            }
            Ok(whole) => {
                let retry_after_ms = words::retry_after_ms(&whole.headers);
                let observation = Observation::Status { code: whole.status, retry_after: retry_after_ms.is_some() };
                let message = words::of_status(whole.status, &whole.body);
                self.broken(Lost::new(observation, Some(whole.status), message), retry_after_ms)
            }
            Err(lost) => self.broken(lost, None),
        }
    }

    fn broken(&self, lost: Lost, retry_after_ms: Option<u64>) -> Answer {
        let meaning: Meaning = meaning_of(&lost.observation, &self.outcomes);
        Answer::Broken {
            meaning,
            status: lost.status,
            retry_after_ms,
            message: self.redactor.sentence(&lost.message).into(),
            seen: lost.seen,
            breach: lost.breach,
        }
    }

    /// One request, one answer. A second connection is opened only if the first, which came from
    /// the pool, provably took no byte of the request.
    async fn exchange(&self, request: &PreparedRequest, progress: &Progress) -> Result<Whole, Lost> {
        if let Some(mut connection) = self.pool.take(&request.origin).await {
            match connection.ask(request, progress).await {
                Ok(response) => {
                    // "You kept me waiting": it may have been said before the request arrived.
                    if response.status() == StatusCode::REQUEST_TIMEOUT {
                        self.pool.was_deceived();
                    }
                    return self.receive(request, connection, response, progress).await;
                }
                Err(lost) if connection.nothing_was_sent() => drop(lost),
                Err(lost) => {
                    self.pool.was_deceived();
                    return Err(lost);
                }
            }
        }
        let mut connection = self.connector.connect(&request.origin).await.map_err(Lost::before_connect)?;
        let response = connection.ask(request, progress).await?;
        self.receive(request, connection, response, progress).await
    }

    async fn receive(
        &self,
        request: &PreparedRequest,
        mut connection: Connection,
        response: Response<Incoming>,
        progress: &Progress,
    ) -> Result<Whole, Lost> {
        progress.advance(Phase::InBody);
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let body = if head.status.is_success() {
            connection
                .read(body, self.max_answer_bytes)
                .await
                .map_err(|message| Lost::new(Observation::CutShort, Some(status), message))?
        } else {
            let body = connection.read(body, LONGEST_ERROR_BODY);
            tokio::time::timeout(ERROR_BODY_PATIENCE, body).await.ok().and_then(Result::ok).unwrap_or_default()
        };
        self.pool.put(request.origin.clone(), connection).await;
        Ok(Whole { status, headers: head.headers, body })
    }
}

impl Lost {
    fn new(observation: Observation, status: Option<u16>, message: String) -> Lost {
        Lost { observation, status, message, seen: Seen::default(), breach: None }
    }

    fn before_connect(message: String) -> Lost {
        Lost::new(Observation::Broken { phase: Phase::BeforeConnect }, None, message)
    }
}

impl Connection {
    /// Sends the request and waits for the head of the answer.
    async fn ask(&mut self, request: &PreparedRequest, progress: &Progress) -> Result<Response<Incoming>, Lost> {
        self.wire.begin(progress.clone(), request.body.is_empty());
        let response =
            self.sender.try_send_request(request.to_http(Sent::new(request.body.clone(), self.wire.clone())));
        self.drive(response).await.map_err(|error| {
            let error = error.into_error();
            let observation = if self.wire.has_begun() && self.wire.has_read() {
                // It began to answer, and what came is no whole head of an HTTP answer.
                Observation::Undecodable
            } else {
                Observation::Broken { phase: progress.phase() }
            };
            Lost::new(observation, None, words::of_lost_connection(&error))
        })
    }

    /// Reads a body to its end.
    async fn read(&mut self, mut body: Incoming, max_bytes: usize) -> Result<Bytes, String> {
        let mut whole = Vec::new();
        loop {
            let frame = self.drive(body.frame()).await;
            match frame {
                None => return Ok(whole.into()),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if whole.len() + data.len() > max_bytes {
                        return Err(format!("the answer is longer than {max_bytes} bytes"));
                    }
                    whole.extend_from_slice(&data);
                }
                Some(Err(_)) => {
                    return Err(format!("the answer was cut short after {} bytes of its body", whole.len()));
                }
            }
        }
    }
}

/// Whether a status says that a page is not to be had now: who asks is not let in, there are too many, or what
/// stands before it does not reach it. 500 is its own word about what it was asked.
fn is_away(status: u16) -> bool {
    matches!(status, 401 | 403 | 407 | 408 | 425 | 429 | 502..=504 | 520..=599)
}
