//! The HTTP client of the verbs that speak to a running server.
//!
//! It never follows a redirect and never repeats a call by itself: what may be sent again, and
//! under which key, is the verb's decision.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use url::{Host, Url};

use super::Stop;
use super::exit::Exit;
use super::problem::Problem;

/// How long to connect: a server that needs longer is not there.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take beyond the wait that was asked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Results may be large; beyond this something is wrong.
const LARGEST_ANSWER: u64 = 1 << 30;

/// Where the server is and who is asking.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The server's address
    #[arg(long, env = "ONEJOB_URL", default_value = "http://127.0.0.1:4545", value_name = "URL")]
    pub(crate) url: String,
    /// Access key, sent as a bearer token; rather use the environment, since arguments are visible to others
    #[arg(long, env = "ONEJOB_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) access_key: Option<String>,
    /// Print the server's JSON as it is, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// A server, ready to be called.
pub(crate) struct Client {
    agent: ureq::Agent,
    base: Url,
    bearer: Option<String>,
}

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// `Idempotent-Replayed: true`.
    pub(crate) replayed: bool,
    /// `Retry-After`, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// The body, byte for byte.
    pub(crate) body: Vec<u8>,
}

/// No answer came; whether the request arrived is not known.
#[derive(Debug)]
pub(crate) struct NoAnswer(pub(crate) String);

/// What is sent.
pub(crate) enum Send<'a> {
    /// GET with a query.
    Get(&'a [(&'a str, &'a str)]),
    /// POST without a body.
    Empty,
    /// POST of a JSON text, with headers.
    Json(&'a str, &'a [(&'a str, &'a str)]),
}

impl Client {
    /// Makes a client.
    ///
    /// # Errors
    ///
    /// [`Exit::Usage`] if the address is none.
    pub(crate) fn new(args: &ServerArgs) -> Result<Client, Stop> {
        let base = Url::parse(&args.url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
        let Some(base) = base else {
            return Err(Stop::told(
                Exit::Usage,
                format!("--url (ONEJOB_URL) is no http or https address: {}", args.url),
            ));
        };
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_body(Some(PATIENCE))
            .user_agent(concat!("onejob/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&base) {
            // A proxy set for the outside world cannot reach this machine's own address.
            config = config.proxy(None);
        }
        Ok(Client { agent: config.build().new_agent(), base, bearer: args.access_key.clone() })
    }

    /// The address of the server, for messages.
    pub(crate) fn address(&self) -> &str {
        self.base.as_str()
    }

    /// One call. `path` is a list of segments, which are escaped; `wait` is how long the server was
    /// asked to hold the answer.
    pub(crate) fn call(&self, path: &[&str], send: Send<'_>, wait: Duration) -> Result<Answer, NoAnswer> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let patience = Some(wait + PATIENCE);
        let response = match send {
            Send::Get(query) => {
                if !query.is_empty() {
                    url.query_pairs_mut().extend_pairs(query);
                }
                self.signed(self.agent.get(url.as_str())).config().timeout_recv_response(patience).build().call()
            }
            Send::Empty => {
                self.signed(self.agent.post(url.as_str())).config().timeout_recv_response(patience).build().send_empty()
            }
            Send::Json(body, headers) => {
                let mut request = self.signed(self.agent.post(url.as_str())).content_type("application/json");
                for (name, value) in headers {
                    request = request.header(*name, *value);
                }
                request.config().timeout_recv_response(patience).build().send(body)
            }
        };
        let mut response = response.map_err(|error| NoAnswer(error.to_string()))?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let replayed = header("idempotent-replayed") == Some("true");
        let retry_after = header("retry-after").and_then(|value| value.trim().parse().ok());
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(LARGEST_ANSWER).read_to_vec();
        let body = body.map_err(|error| NoAnswer(error.to_string()))?;
        Ok(Answer { status, replayed, retry_after, body })
    }

    /// One call whose every answer but a success stops the verb.
    pub(crate) fn ask(&self, path: &[&str], send: Send<'_>, wait: Duration) -> Result<Answer, Stop> {
        let answer = self.call(path, send, wait).map_err(|no_answer| self.unreached(&no_answer))?;
        answer.or_refused()
    }

    /// What to say when no answer came.
    pub(crate) fn unreached(&self, why: &NoAnswer) -> Stop {
        Stop::Told {
            exit: Exit::Unavailable,
            message: format!("no answer from {}: {}", self.address(), why.0),
            next: Some("is the server running there (`onejob serve`)? Its address is --url or ONEJOB_URL.".to_owned()),
        }
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.bearer {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }
}

impl Answer {
    /// Itself if it is a success.
    ///
    /// # Errors
    ///
    /// [`Stop::Refused`] with the problem document.
    pub(crate) fn or_refused(self) -> Result<Answer, Stop> {
        match self.status {
            200..=299 => Ok(self),
            _ => Err(Stop::Refused(Problem::of(self))),
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
