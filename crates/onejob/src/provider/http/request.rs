//! The request: rendered whole before a connection is opened, so that a template that does not
//! render fails for certain, with nothing sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request};
use serde_json::{Map, Value};
use url::Url;

use super::connect::Origin;
use super::wire::Sent;
use crate::config::{Chat, HttpDefinition, OutputMode};
use crate::id;
use crate::provider::{CallInput, base_scope};
use crate::template::{Scope, Template, TemplateError};

const JOB_ID: HeaderName = HeaderName::from_static("onejob-job-id");
const ATTEMPT_ID: HeaderName = HeaderName::from_static("onejob-attempt-id");
const USER_AGENT: &str = concat!("onejob/", env!("CARGO_PKG_VERSION"));

/// A request, ready to be sent once.
pub struct PreparedRequest {
    pub(super) origin: Origin,
    method: Method,
    path_and_query: String,
    headers: HeaderMap,
    pub(super) body: Bytes,
    /// What the templates over the answer see of the call. No secrets.
    pub(super) scope: Scope,
}

impl PreparedRequest {
    pub(super) fn to_http(&self, body: Sent) -> Request<Sent> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        // It was checked when the request was prepared.
        *request.uri_mut() = self.path_and_query.parse().unwrap_or_default();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

impl std::fmt::Debug for PreparedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Everything else may hold secrets and inputs.
        f.debug_struct("PreparedRequest").field("body_bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// Makes requests of calls.
pub(super) struct Renderer {
    method: Method,
    url: Template,
    headers: Vec<(HeaderName, Template)>,
    body: Option<Template>,
    idempotency_header: Option<HeaderName>,
    secrets: Arc<Value>,
    settings: Arc<Value>,
    /// The names that the templates read: what they do not read is not made.
    names: BTreeSet<String>,
}

impl Renderer {
    pub(super) fn open(name: &str, definition: &HttpDefinition) -> Result<Renderer, String> {
        let header = |text: &str| {
            HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("provider {name}: {text:?} is no header name"))
        };
        let headers = definition.headers.iter().map(|(name, value)| Ok((header(name)?, value.clone())));
        let headers: Vec<(HeaderName, Template)> = headers.collect::<Result<_, String>>()?;
        let of_request =
            [&definition.url].into_iter().chain(&definition.body).chain(headers.iter().map(|(_, value)| value));
        let names = of_request.chain(definition.response.templates()).flat_map(Template::names).collect();
        let secrets = definition.secrets.iter().map(|(name, secret)| (name.clone(), Value::from(secret.reveal())));
        Ok(Renderer {
            method: Method::from_bytes(definition.method.as_bytes())
                .map_err(|_| format!("provider {name}: {:?} is no HTTP method", definition.method))?,
            url: definition.url.clone(),
            headers,
            body: definition.body.clone(),
            idempotency_header: definition.idempotency_header.as_deref().map(header).transpose()?,
            secrets: Arc::new(secrets.collect::<Map<_, _>>().into()),
            settings: Arc::new(definition.settings.clone().into()),
            names,
        })
    }

    /// Renders a request; an error is a sentence without any rendered value.
    pub(super) fn prepare(&self, call: &CallInput) -> Result<PreparedRequest, String> {
        let scope = self.scope(call)?;
        let seen = scope.clone().with_shared("secret", self.secrets.clone());
        let url = render_url(&self.url, &seen)?;
        let body = match &self.body {
            None => Bytes::new(),
            Some(template) => {
                let body = template.render(&seen).map_err(|error| place("request.body", &error))?;
                body.map_or_else(Bytes::new, |body| body.to_string().into())
            }
        };
        let headers = self.render_headers(call, &seen, &url, !body.is_empty())?;
        let path_and_query = path_and_query(&url)?;
        Ok(PreparedRequest { origin: origin(&url)?, method: self.method.clone(), path_and_query, headers, body, scope })
    }

    /// Where every request goes. The host is written out, or stands in the provider's settings (the loader
    /// demands it); what follows may depend on the job.
    pub(super) fn fixed_origin(&self) -> Option<Origin> {
        let scope =
            Scope::new().with_shared("provider", self.settings.clone()).with_shared("secret", self.secrets.clone());
        let whole = render_url(&self.url, &scope).ok();
        let beginning = || Url::parse(&self.url.fixed_beginning()?).ok().filter(Url::has_host);
        origin(&whole.or_else(beginning)?).ok()
    }

    /// A POST of JSON to another page of the provider, with the same headers.
    pub(super) fn prepare_beside(
        &self,
        call: &CallInput,
        url: &Template,
        sibling: Option<&str>,
        mut body: Value,
    ) -> Result<PreparedRequest, String> {
        // No chat: there is no input to render one for.
        let scope = self.base(call, None);
        let seen = scope.clone().with_shared("secret", self.secrets.clone());
        let mut url = render_url(url, &seen)?;
        if let Some(sibling) = sibling
            && let Ok(mut segments) = url.path_segments_mut()
        {
            segments.pop().push(sibling);
        }
        if let (Some(members), Some(model)) = (body.as_object_mut(), self.settings.get("model")) {
            members.insert("model".to_owned(), model.clone());
        }
        let headers = self.render_headers(call, &seen, &url, true)?;
        let (origin, path_and_query) = (origin(&url)?, path_and_query(&url)?);
        let body = body.to_string().into();
        Ok(PreparedRequest { origin, method: Method::POST, path_and_query, headers, body, scope })
    }

    fn scope(&self, call: &CallInput) -> Result<Scope, String> {
        let reads = |name: &str| self.names.contains(name);
        let input = (reads("input") || reads("chat")).then(|| call.input.clone());
        let mut scope = self.base(call, input);
        if reads("chat") {
            let chat = call.chat.as_deref().ok_or_else(|| {
                format!("this provider sends a chat, and task {} has no [tasks.{}.chat]", call.task, call.task)
            })?;
            let rendered = render_chat(chat, self.mode_of(chat), &scope)?;
            scope = scope.with("chat", rendered);
        }
        Ok(scope)
    }

    fn base(&self, call: &CallInput, input: Option<Value>) -> Scope {
        base_scope(call, input)
            .with_shared("provider", self.settings.clone())
            .with("callback_url", Value::from(call.callback_url.as_str()))
    }

    /// The output mode of a chat: its own, or what the provider's settings say. Without a schema there is
    /// none to send.
    fn mode_of(&self, chat: &Chat) -> OutputMode {
        let setting = || self.settings.get("output_mode").and_then(Value::as_str).and_then(OutputMode::parse);
        match chat.mode.or_else(setting).unwrap_or(OutputMode::Text) {
            OutputMode::JsonSchema if chat.schema.is_none() => OutputMode::Text,
            mode @ (OutputMode::Text | OutputMode::JsonObject | OutputMode::JsonSchema) => mode,
        }
    }

    fn render_headers(&self, call: &CallInput, scope: &Scope, url: &Url, has_body: bool) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host(url)?);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        // Answers are not decompressed.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if has_body {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        } else if matches!(self.method, Method::POST | Method::PUT | Method::PATCH) {
            // Without it some servers wait for a body, or answer 411.
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        for (name, template) in &self.headers {
            let rendered = template.render(scope).map_err(|error| place(&format!("request.headers.{name}"), &error))?;
            if let Some(value) = rendered {
                headers.insert(name, header_value(name, &value)?);
            }
        }
        let attempt = id::attempt_text(call.attempt);
        let given = |text: &str| HeaderValue::from_str(text).map_err(|_| "an id is no header value".to_owned());
        headers.insert(JOB_ID, given(&id::job_text(call.job))?);
        headers.insert(ATTEMPT_ID, given(&attempt)?);
        if let Some(name) = &self.idempotency_header {
            headers.insert(name, given(&attempt)?);
        }
        Ok(headers)
    }
}

fn render_chat(chat: &Chat, mode: OutputMode, scope: &Scope) -> Result<Value, String> {
    let mut rendered = Map::new();
    if let Some(system) = &chat.system
        && let Some(text) = system.render(scope).map_err(|error| place("chat.system", &error))?
    {
        rendered.insert("system".to_owned(), text);
    }
    match chat.user.render(scope).map_err(|error| place("chat.user", &error))? {
        None | Some(Value::Null) => return Err("chat.user renders to nothing".to_owned()),
        Some(text) => rendered.insert("user".to_owned(), text),
    };
    if let Some(temperature) = chat.temperature {
        rendered.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(tokens) = chat.max_output_tokens {
        rendered.insert("max_output_tokens".to_owned(), tokens.into());
    }
    rendered.insert("output_mode".to_owned(), mode.as_str().into());
    if let Some((name, schema)) = chat.schema.as_ref().filter(|_| mode == OutputMode::JsonSchema) {
        rendered.insert("schema_name".to_owned(), (&**name).into());
        rendered.insert("schema".to_owned(), (**schema).clone());
    }
    Ok(rendered.into())
}

fn render_url(url: &Template, scope: &Scope) -> Result<Url, String> {
    let rendered = url.render(scope).map_err(|error| place("request.url", &error))?;
    let text = rendered.as_ref().and_then(Value::as_str).ok_or("request.url renders to nothing, or to no string")?;
    let url = Url::parse(text).map_err(|error| format!("request.url renders to no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("request.url is neither http nor https".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("request.url holds a user name or password: put them into a header".to_owned());
    }
    // Nobody writes them, and they would let a value that is pasted into a path leave it.
    if has_dot_segment(text) {
        return Err("request.url renders to a path with `.` or `..` in it".to_owned());
    }
    Ok(url)
}

fn path_and_query(url: &Url) -> Result<String, String> {
    let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
    let path_and_query = format!("{}{query}", url.path());
    match path_and_query.parse::<hyper::Uri>() {
        Ok(_) => Ok(path_and_query),
        Err(_) => Err("request.url renders to a path that HTTP does not know".to_owned()),
    }
}

/// Whether a URL's path has a segment that a URL parser takes for "here" or "up".
fn has_dot_segment(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split(['/', '\\'])
        .any(|segment| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | ".."))
}

fn place(name: &str, error: &TemplateError) -> String {
    format!("{name}{} does not render: {error}", error.path)
}

fn origin(url: &Url) -> Result<Origin, String> {
    let host = url.host_str().ok_or("request.url has no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("request.url has no port")?;
    Ok(Origin { secure: url.scheme() == "https", host, port })
}

fn host(url: &Url) -> Result<HeaderValue, String> {
    let host = url.host_str().ok_or("request.url has no host")?;
    let text = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    HeaderValue::from_str(&text).map_err(|_| "request.url has a host that HTTP does not know".to_owned())
}

fn header_value(name: &HeaderName, value: &Value) -> Result<HeaderValue, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(format!("request.headers.{name} renders to no string"));
        }
    };
    if text.chars().any(char::is_control) {
        return Err(format!("request.headers.{name} renders to text with a control character, such as a line break"));
    }
    let mut value =
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| format!("request.headers.{name} is no header value"))?;
    // It may be a secret: kept out of Debug.
    value.set_sensitive(true);
    Ok(value)
}
