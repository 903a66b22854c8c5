use super::server::Server;
use super::*;
use crate::config::Chat;

/// The reason why a definition cannot make a request of this input.
fn refused(definition: &HttpDefinition, input: Value) -> String {
    let failure = open(definition).prepare(&call_with(input)).unwrap_err();
    assert_eq!(failure.class, FailureClass::Invalid);
    failure.message.to_string()
}

#[tokio::test]
async fn a_request_looks_like_this() {
    let server = Server::answering(good()).await;
    let mut definition =
        definition(&format!("{}/{{{{ input.id | urlencode }}}}?q={{{{ attempt.number }}}}", server.url()));
    definition.idempotency_header = Some("Idempotency-Key".to_owned());
    definition.body = Some(template(
        json!({"z": "{{ input.n }}", "a": ["{{ input.nothing }}", "{{ job.task }}"], "notify": "{{ callback_url }}"}),
    ));
    let input: Value =
        serde_json::from_str(r#"{"id": "a/../b?c", "n": {"y": 9007199254740993, "x": 0.1000000000000000055}}"#)
            .unwrap();
    output(ask_with(&open(&definition), input).await.0);
    let request = server.log.requests().remove(0).replace(&server.port.to_string(), "PORT");
    insta::assert_snapshot!(request.replace('\r', ""), @r#"
    POST /v1/do/a%2F..%2Fb%3Fc?q=1 HTTP/1.1
    host: 127.0.0.1:PORT
    user-agent: onejob/0.1.0
    accept: application/json
    accept-encoding: identity
    content-type: application/json
    authorization: Bearer sk-hunter2
    onejob-job-id: job_01j0000000e008000000000001
    onejob-attempt-id: att_01j0000000e008000000000002
    idempotency-key: att_01j0000000e008000000000002
    content-length: 116

    {"z":{"y":9007199254740993,"x":0.1000000000000000055},"a":["plain"],"notify":"http://127.0.0.1:4545/v1/callbacks/x"}
    "#);
}

#[tokio::test]
async fn a_request_without_body_has_none() {
    let server = Server::answering(good()).await;
    for (method, length) in [("GET", None), ("POST", Some("content-length: 0"))] {
        let mut definition = definition(&server.url());
        definition.method = method.to_owned();
        definition.body = None;
        let (answer, phase) = ask_with(&open(&definition), json!(1)).await;
        assert_eq!((output(answer), phase), (json!({"ok": true}), Phase::InBody));
        let request = server.log.requests().pop().unwrap();
        assert!(request.starts_with(method) && request.ends_with("\r\n\r\n") && !request.contains("content-type"));
        assert_eq!(request.lines().find(|line| line.starts_with("content-length")), length, "{request}");
    }
}

#[tokio::test]
async fn a_megabyte_is_sent_once_and_whole() {
    let server = Server::answering(good()).await;
    let text = "é".repeat(1 << 19);
    let (answer, _) = ask_with(&open(&definition(&server.url())), json!({"text": text})).await;
    assert_eq!(output(answer), json!({"ok": true}));
    let requests = server.log.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].ends_with(&format!("\r\n\r\n{}", json!({"do": {"text": text}}))));
}

#[tokio::test]
async fn a_provider_may_answer_before_it_has_read_the_body() {
    let server = Server::start(|mut conn| async move {
        conn.head().await;
        conn.write(&http(413, "connection: close\r\n", r#"{"error": "too big"}"#)).await;
        conn.closed().await;
    })
    .await;
    let (answer, _) = ask_with(&open(&definition(&server.url())), json!("x".repeat(16 << 20))).await;
    let broken = broken(answer);
    assert_eq!((broken.meaning, broken.message.as_str()), (failed(FailureClass::Invalid), "too big"));
}

#[tokio::test]
async fn a_provider_that_stops_reading_leaves_the_call_sending() {
    let server = Server::start(|mut conn| async move {
        conn.head().await;
        conn.log.until(1).await;
    })
    .await;
    // A head so long that it is sent before the body is taken.
    let mut definition = definition(&server.url());
    definition.headers.push(("x-long".to_owned(), template(json!("x".repeat(1 << 20)))));
    let provider = open(&definition);
    let request = provider.prepare(&call_with(json!("x".repeat(32 << 20)))).unwrap();
    let progress = Progress::new();
    let mut call = std::pin::pin!(provider.send(request, &progress));
    let began = async {
        while progress.phase() == Phase::BeforeConnect {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = &mut call => panic!("{answer:?}"),
        began = tokio::time::timeout(LIMIT, began) => began.unwrap(),
    }
    assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err());
    assert_eq!(progress.phase(), Phase::Sending);
}

#[test]
fn what_does_not_render_is_invalid_and_names_the_place() {
    let mut broken = definition("http://h/{{ input.id }}/x");
    assert_eq!(refused(&broken, json!({})), "request.url does not render: `input.id` is undefined");
    broken.url = template(json!("http://h/"));
    broken.body = Some(template(json!({"a": ["x {{ input.id }}"]})));
    assert_eq!(refused(&broken, json!({})), "request.body/a/0 does not render: `input.id` is undefined");
    broken.body = None;
    broken.headers = vec![("x-a".to_owned(), template(json!("{{ input.id }}")))];
    assert!(
        refused(&broken, json!({"id": "a\r\nb: c"})).starts_with("request.headers.x-a renders to text with a control")
    );
    assert_eq!(refused(&broken, json!({"id": ["a"]})), "request.headers.x-a renders to no string");
    assert!(open(&broken).prepare(&call_with(json!({}))).is_ok());
}

#[test]
fn only_plain_http_urls_are_asked() {
    for (url, reason) in [
        ("ftp://h/", "request.url is neither http nor https"),
        ("file:///etc/passwd", "request.url is neither http nor https"),
        ("{{ input.nothing }}", "request.url renders to nothing, or to no string"),
        ("{{ input }}", "request.url renders to nothing, or to no string"),
        ("h/x", "request.url renders to no URL: relative URL without a base"),
        ("http://", "request.url renders to no URL: empty host"),
        ("http://user:hunter3@h/", "request.url holds a user name or password: put them into a header"),
        ("http://h/a/../b", "request.url renders to a path with `.` or `..` in it"),
        ("http://h/a/%2E./b", "request.url renders to a path with `.` or `..` in it"),
        ("http://h/{{ '..' | urlencode }}?x=..", "request.url renders to a path with `.` or `..` in it"),
        ("http://h:99999/", "request.url renders to no URL: invalid port number"),
    ] {
        assert_eq!(refused(&definition(url), json!({})), reason);
    }
}

#[test]
fn a_chat_is_rendered_and_asked_for() {
    let mut chatting = definition("http://h/");
    chatting.body =
        Some(template(json!({"m": ["{{ chat.system }}", "{{ chat.user }}"], "t": "{{ chat.temperature }}"})));
    assert_eq!(refused(&chatting, json!({})), "this provider sends a chat, and task plain has no [tasks.plain.chat]");
    let mut call = call_with(json!({"text": "T"}));
    let chat = |system: Option<&str>, user: &str| Chat {
        system: system.map(|text| template(json!(text))),
        user: template(json!(user)),
        temperature: Some(0.0),
        max_output_tokens: None,
        mode: None,
        schema: None,
    };
    call.chat = Some(Arc::new(chat(None, "Summarize: {{ input.text }} for {{ job.owner }}")));
    let request = open(&chatting).prepare(&call).unwrap();
    assert_eq!(request.body, r#"{"m":["Summarize: T for user_1"],"t":0.0}"#);
    call.chat = Some(Arc::new(chat(Some("S {{ input.nothing }}"), "U")));
    let failure = open(&chatting).prepare(&call).unwrap_err();
    assert_eq!(&*failure.message, "chat.system does not render: `input.nothing` is undefined");
}

#[tokio::test]
async fn secrets_are_in_no_message_and_no_debug_text() {
    let mut leaky = definition("http://{{ secret.api_key }}.invalid/{{ secret.api_key }}");
    leaky.body = Some(template(json!({"k": "{{ secret.api_key }}"})));
    let provider = open(&leaky);
    let request = provider.prepare(&call_with(json!(1))).unwrap();
    let debug = format!("{request:?} {leaky:?}");
    let message = broken(provider.send(request, &Progress::new()).await).message;
    assert!(message.starts_with("cannot connect to ***.invalid:80"), "{message}");
    leaky.url = template(json!("http://h:{{ secret.api_key }}/"));
    leaky.headers = vec![("x".to_owned(), template(json!("{{ secret.api_key + 1 }}")))];
    let refused = refused(&leaky, json!(1));
    for text in [debug, message, refused] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_definition_that_cannot_work_is_refused_when_it_is_opened() {
    let reason = |change: fn(&mut HttpDefinition)| {
        let mut definition = definition("http://h/");
        change(&mut definition);
        HttpProvider::open("main", 1, &definition).err().unwrap()
    };
    assert!(reason(|d| d.method = "GE T".into()).contains("no HTTP method"));
    assert!(reason(|d| d.headers.push(("a b".into(), template(json!("x"))))).contains("no header name"));
    assert!(reason(|d| d.idempotency_header = Some("ä".into())).contains("no header name"));
    assert!(reason(|d| d.ca_file = Some("/nowhere/ca.pem".into())).starts_with("ca_file /nowhere/ca.pem: "));
    assert!(reason(|d| d.ca_file = Some("/dev/null".into())).ends_with("no certificate in it"));
}
