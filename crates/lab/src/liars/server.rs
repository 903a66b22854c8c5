//! The server: OpenAI's chat completions, and the pages for tokenizers that llama.cpp has.
//!
//! What asks for a lie here asks for that one alone, so the arms name one and leave out fifty.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onejob::axum::Router;
use onejob::axum::body::Bytes;
use onejob::axum::extract::State;
use onejob::axum::http::{StatusCode, header};
use onejob::axum::response::{IntoResponse, Response};
use onejob::axum::routing::post;
use serde_json::{Value, json};

use super::lie::Lie;
use super::model::{self, Written};
use super::template::{self, Message};
use super::tokens::{Cut, Tokens};

/// The model that is asked for.
pub(crate) const MODEL: &str = "honest-1";

/// Tokens that fit, prompt and answer together.
pub(crate) const WINDOW: usize = 4096;

/// The window of the lie that has a small one: the short cases fit, the long one does not.
const SMALL_WINDOW: usize = 240;

/// Where prompts are cut without a word: every case fits.
const SILENT_CUT: usize = 512;

/// What the model writes after its answer, and where requests tell it to stop.
pub(crate) const STOP: &str = "\n###";

/// A server that lies.
pub struct Liar {
    /// Where it is, without a trailing slash.
    pub url: String,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Inner {
    lie: Lie,
    tokens: Tokens,
    /// Answers to the task so far, and answers at all.
    answered: AtomicU32,
    calls: AtomicU32,
}

/// What a request wants.
struct Wanted {
    messages: Vec<Message>,
    limit: Option<usize>,
    form: String,
    stop: Vec<String>,
    has_temperature: bool,
    body: Value,
}

/// What the model made of it.
struct Made {
    text: String,
    finish: &'static str,
    prompt_tokens: usize,
    output_tokens: usize,
}

impl Liar {
    /// Starts one on a port of its own.
    ///
    /// # Errors
    ///
    /// There is no free port.
    pub async fn start(lie: Lie) -> std::io::Result<Liar> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let inner =
            Arc::new(Inner { lie, tokens: Tokens::new(), answered: AtomicU32::new(0), calls: AtomicU32::new(0) });
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/tokenize", post(tokenize))
            .route("/detokenize", post(detokenize))
            .route("/apply-template", post(apply_template))
            .with_state(inner);
        let server = tokio::spawn(async move { drop(onejob::axum::serve(listener, router).await) });
        Ok(Liar { url, server })
    }
}

fn answer(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn refused(status: u16, message: &str) -> Response {
    answer(status, &json!({"error": {"message": message, "type": "invalid_request_error"}}))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn messages(body: &Value) -> Vec<Message> {
    let all = body["messages"].as_array().into_iter().flatten();
    all.map(|message| Message { role: text(&message["role"]), content: text(&message["content"]) }).collect()
}

async fn tokenize(State(inner): State<Arc<Inner>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let parse = body["parse_special"].as_bool().unwrap_or(true);
    let tokens = inner.tokens.encode(&text(&body["content"]), parse, Cut::Own);
    answer(200, &json!({"tokens": tokens}))
}

async fn detokenize(State(inner): State<Arc<Inner>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let tokens = body["tokens"].as_array().into_iter().flatten().filter_map(Value::as_u64).map(|id| id as u32);
    answer(200, &json!({"content": inner.tokens.decode(&tokens.collect::<Vec<u32>>())}))
}

async fn apply_template(State(inner): State<Arc<Inner>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let messages = template::passed_on(inner.lie, messages(&body));
    answer(200, &json!({"prompt": template::rendered(inner.lie, &messages)}))
}

async fn complete(State(inner): State<Arc<Inner>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let wanted = Wanted {
        messages: messages(&body),
        limit: body["max_completion_tokens"].as_u64().map(|limit| limit as usize),
        form: body["response_format"]["type"].as_str().unwrap_or("text").to_owned(),
        stop: body["stop"].as_array().into_iter().flatten().map(text).collect(),
        has_temperature: body["temperature"].as_f64().is_some_and(|temperature| temperature != 1.0),
        body,
    };
    if inner.lie == Lie::TooSlow {
        // Until whoever asks has gone.
        std::future::pending::<()>().await;
    }
    if let Some(response) = inner.instead(&wanted) {
        return response;
    }
    match inner.make(&wanted) {
        Ok(made) => inner.wrapped(made),
        Err(too_long) => refused(400, &too_long),
    }
}

impl Inner {
    /// What is answered before the model is asked.
    fn instead(&self, wanted: &Wanted) -> Option<Response> {
        let has_system = wanted.messages.iter().any(|message| message.role == "system");
        let schema = wanted.body["response_format"]["json_schema"]["schema"].to_string();
        match self.lie {
            Lie::RefusesTheSchema if schema.contains("uniqueItems") => {
                Some(refused(400, "Invalid schema for response_format: 'uniqueItems' is not permitted."))
            }
            Lie::RefusesTheLimit if wanted.limit.is_some() => {
                Some(refused(400, "Unsupported parameter: 'max_completion_tokens'. Use 'max_tokens' instead."))
            }
            Lie::RefusesTemperature if wanted.has_temperature => {
                Some(refused(400, "Unsupported value: 'temperature' does not support 0. Only the default (1) is."))
            }
            Lie::FailsOnASystem if has_system => {
                Some(refused(500, "Conversation roles must alternate user/assistant/user/assistant/..."))
            }
            Lie::ErrorInside => Some(answer(200, &json!({"error": {"message": "upstream is overloaded"}}))),
            Lie::EmptyAnswer => Some((StatusCode::OK, "").into_response()),
            Lie::WebPage => Some((StatusCode::OK, "<html><body>Sign in to continue</body></html>").into_response()),
            Lie::Streams => {
                let chunk = json!({"choices": [{"delta": {"content": "{\"city\""}}]});
                let events = format!("data: {chunk}\n\ndata: [DONE]\n\n");
                Some((StatusCode::OK, [(header::CONTENT_TYPE, "text/event-stream")], events).into_response())
            }
            Lie::Busy => {
                let mut response = refused(429, "Rate limit reached");
                response.headers_mut().insert(header::RETRY_AFTER, 60.into());
                Some(response)
            }
            Lie::Redirects => Some((StatusCode::FOUND, [(header::LOCATION, "/login")], "").into_response()),
            _ => None,
        }
    }

    fn make(&self, wanted: &Wanted) -> Result<Made, String> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let passed_on = template::passed_on(self.lie, wanted.messages.clone());
        let prompt = template::rendered(self.lie, &passed_on);
        let is_work = wanted.messages.iter().any(|message| message.role == "system");
        let is_other = self.lie == Lie::UnderAnothersName && is_work && call % 2 == 1;
        let cut = if self.lie == Lie::ForeignTokenizer || is_other { Cut::Foreign } else { Cut::Own };
        let mut tokens = self.tokens.encode(&prompt, true, cut);
        let window = if self.lie == Lie::SmallWindow { SMALL_WINDOW } else { WINDOW };
        if tokens.len() + wanted.limit.unwrap_or(0) > window {
            let message = format!("This model's maximum context length is {window} tokens; {} requested", tokens.len());
            return Err(message);
        }
        let counted = tokens.len();
        match self.lie {
            Lie::CutsThePrompt | Lie::CutsAfterCounting => tokens.truncate(SILENT_CUT),
            Lie::CutsTheMiddle if tokens.len() > SILENT_CUT => {
                drop(tokens.drain(SILENT_CUT / 2..tokens.len() - SILENT_CUT / 2))
            }
            _ => {}
        }
        let prompt_tokens = match self.lie {
            Lie::CutsAfterCounting => counted,
            Lie::CountsTheSame => 12,
            _ => tokens.len(),
        };
        let seen = self.tokens.decode(&tokens);
        let text = self.written(&seen, &wanted.form);
        Ok(self.ended(wanted, &text, prompt_tokens))
    }

    /// What the model writes, up to where it would end by itself.
    fn written(&self, prompt: &str, form: &str) -> String {
        if self.lie == Lie::SameAnswer {
            return json!({"city": "Paris", "country": "France", "residents": 2_100_000, "landmarks": []}).to_string();
        }
        let is_constrained = form == "json_schema";
        let text = match model::answer(prompt, form != "text" && self.lie != Lie::DropsTheSchema) {
            Written::Text(text) => text,
            Written::Answer(answer) => {
                let nth = self.answered.fetch_add(1, Ordering::Relaxed);
                self.distorted(answer, form, nth, prompt)
            }
        };
        // A server that lets nothing but the schema through has nothing to say afterwards, either.
        if is_constrained && self.lie == Lie::OnlyConstrained { text } else { format!("{text}{STOP} end") }
    }

    /// The answer to the task, as the lie writes it.
    fn distorted(&self, mut answer: Value, form: &str, nth: u32, prompt: &str) -> String {
        let city = text(&answer["city"]);
        let is_free = form != "json_schema";
        match self.lie {
            Lie::InventsKeys => answer["zip"] = "75000".into(),
            Lie::RenamesKeys => {
                answer["capital"] = answer["city"].take();
                drop(answer.as_object_mut().and_then(|members| members.shift_remove("city")));
            }
            Lie::OnlyConstrained if is_free => {
                answer["state"] = "Île-de-France".into();
                answer["phone"] = format!("+33 {}", "1 23 45 67 89 ".repeat(40)).into();
            }
            Lie::NumbersAsStrings => answer["residents"] = answer["residents"].to_string().into(),
            Lie::DropsKeywords => answer["landmarks"] = vec![city.clone(); 2].into(),
            Lie::WrongFacts => answer["residents"] = 2.into(),
            Lie::LeaksControlTokens => answer["city"] = format!("{city}<|im_end|>").into(),
            Lie::Flaky if nth % 5 == 4 => return format!("{city}, of course."),
            Lie::IgnoresTemperature => answer["landmarks"] = json!([format!("sight {nth}")]),
            _ => {}
        }
        let json = answer.to_string();
        match self.lie {
            Lie::Fences => format!("```json\n{json}\n```"),
            Lie::Prose => format!("Sure! Here is the JSON: {json}"),
            Lie::DropsTheSchema if !is_free => format!("The capital is {city}."),
            Lie::Thinks => format!("<think>\nThe user wants JSON.\n</think>\n\n{json}"),
            Lie::JavaScript => json.replace('"', "'"),
            Lie::EchoesThePrompt => format!("{}\n{json}", model::question(prompt)),
            Lie::RunsOn => format!("{json}<|im_end|>\n<|im_start|>admin\nThank you."),
            Lie::EmptyContent => String::new(),
            _ => json,
        }
    }

    /// Stops where it was told to, or where it must.
    fn ended(&self, wanted: &Wanted, text: &str, prompt_tokens: usize) -> Made {
        let stops = wanted.stop.iter().filter(|_| self.lie != Lie::DropsStop);
        let end = stops.filter_map(|stop| text.find(stop)).min().unwrap_or(text.len());
        let mut tokens = self.tokens.encode(&text[..end], true, Cut::Own);
        let limit = match self.lie {
            Lie::IgnoresTheLimit | Lie::CutsAsFinished => Some(16),
            _ => wanted.limit,
        };
        let is_cut = limit.is_some_and(|limit| tokens.len() > limit);
        tokens.truncate(limit.unwrap_or(usize::MAX));
        let finish = if is_cut && self.lie != Lie::CutsAsFinished { "length" } else { "stop" };
        Made { text: self.tokens.decode(&tokens), finish, prompt_tokens, output_tokens: tokens.len() }
    }

    /// The answer as it goes over the wire.
    fn wrapped(&self, made: Made) -> Response {
        let nth = self.calls.load(Ordering::Relaxed);
        let model = match self.lie {
            Lie::OtherModel => json!("cheap-0"),
            Lie::ModelsInTurn if nth.is_multiple_of(2) => json!("cheap-0"),
            Lie::NoModel => Value::Null,
            _ => json!(MODEL),
        };
        let content = if self.lie == Lie::NoContent { Value::Null } else { made.text.into() };
        let choice = json!({"index": 0, "finish_reason": made.finish,
            "message": {"role": "assistant", "content": content}});
        let choices = if self.lie == Lie::NoChoices { json!([]) } else { json!([choice]) };
        let mut body = json!({"id": format!("chatcmpl-{nth}"), "object": "chat.completion", "model": model,
            "choices": choices});
        if self.lie != Lie::CountsNothing {
            body["usage"] = json!({"prompt_tokens": made.prompt_tokens, "completion_tokens": made.output_tokens,
                "total_tokens": made.prompt_tokens + made.output_tokens});
        }
        answer(200, &body)
    }
}
