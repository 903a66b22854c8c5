use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::wire::{Sent, Watched, Wire};
use super::server::Server;
use super::*;

/// Asks a server that gives this answer once, and closes. It must have been asked exactly once.
async fn ask_once(answer: &str) -> Answer {
    let server = Server::saying(answer).await;
    let (answer, _) = ask(&server.url()).await;
    assert_eq!((server.log.requests().len(), server.log.connections()), (1, 1));
    answer
}

#[tokio::test]
async fn a_reset_before_the_answer_is_unknown() {
    let server = Server::start(|mut conn| async move {
        conn.request().await;
        conn.reset();
    })
    .await;
    let (answer, phase) = ask(&server.url()).await;
    assert_eq!(broken(answer).meaning, unknown(Cause::ConnectionLost));
    assert_eq!(phase, Phase::AwaitingHeaders);
    assert_eq!((server.log.requests().len(), server.log.connections()), (1, 1));
}

#[tokio::test]
async fn a_reset_within_the_answer_is_unknown() {
    for begun in ["HTTP/1.1 200 OK\r\ncontent-", "HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n{\"output\":"] {
        let server = Server::start(move |mut conn| async move {
            conn.request().await;
            conn.write(begun).await;
            // The client has read it when it asks for more and is told of the reset.
            tokio::task::yield_now().await;
            conn.reset();
        })
        .await;
        let broken = broken(ask(&server.url()).await.0);
        assert!(matches!(broken.meaning, Meaning::Unknown(_)), "{broken:?}");
        assert_eq!(server.log.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_close_before_the_answer_is_unknown() {
    assert_eq!(broken(ask_once("").await).meaning, unknown(Cause::ConnectionLost));
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_unknown() {
    let whole = good();
    let body_at = whole.find("\r\n\r\n").unwrap() + 4;
    for cut in [1, 9, 30, body_at, body_at + 1, whole.len() - 1] {
        let broken = broken(ask_once(&whole[..cut]).await);
        assert_eq!(broken.meaning, unknown(Cause::CutShort), "cut at {cut}");
        assert_eq!(broken.status, (cut >= body_at).then_some(200), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_chunked_answer_needs_its_last_chunk() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = "14\r\n{\"output\":{\"ok\":true\r\n2\r\n}}\r\n";
    assert_eq!(output(ask_once(&format!("{head}{chunk}0\r\n\r\n")).await), json!({"ok": true}));
    assert_eq!(broken(ask_once(&format!("{head}{chunk}")).await).meaning, unknown(Cause::CutShort));
    assert_eq!(broken(ask_once(&format!("{head}{chunk}zz\r\n")).await).meaning, unknown(Cause::CutShort));
}

#[tokio::test]
async fn an_answer_without_end_marker_is_good_only_if_it_shows_its_own_end() {
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(output(ask_once(&format!("{head}{{\"output\":{{}}}}")).await), json!({}));
    for cut in ["", "{\"output\":{}", "12", " "] {
        assert_eq!(broken(ask_once(&format!("{head}{cut}")).await).meaning, unknown(Cause::CutShort), "{cut:?}");
    }
}

#[tokio::test]
async fn a_wrong_content_length_is_unknown() {
    let body = r#"{"output":{}}"#;
    for length in [5, 100] {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        assert_eq!(broken(ask_once(&answer).await).meaning, unknown(Cause::CutShort), "{length}");
    }
    let twice = format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 13\r\n\r\n{body}");
    assert!(matches!(broken(ask_once(&twice).await).meaning, Meaning::Unknown(_)));
}

#[tokio::test]
async fn garbage_instead_of_http_is_unknown() {
    for garbage in
        ["SSH-2.0-OpenSSH_9.2\r\n", "\0\u{1}\u{2}\u{3}\r\n\r\n", "HTTP/2 200\r\n\r\n", "{\"output\":1}\r\n\r\n"]
    {
        let broken = broken(ask_once(garbage).await);
        assert_eq!(broken.meaning, unknown(Cause::CutShort), "{garbage:?}");
        assert!(!broken.message.contains("SSH"));
    }
}

#[tokio::test]
async fn a_2xx_answer_that_is_no_json_is_unknown() {
    for body in ["<html>", "", "nul", "{\"output\":1}x", "[1,]"] {
        let broken = broken(ask_once(&http(200, "", body)).await);
        assert_eq!((broken.meaning, broken.status), (unknown(Cause::CutShort), Some(200)), "{body:?}");
    }
}

#[tokio::test]
async fn an_answer_without_what_the_definition_takes_breaks_the_contract() {
    for body in ["{}", "[]", "null", r#"{"result": 1}"#] {
        let broken = broken(ask_once(&http(200, "", body)).await);
        assert_eq!(broken.meaning, failed(FailureClass::BrokenContract), "{body}");
        assert_eq!(broken.message, "the answer has no response.output");
    }
    assert_eq!(output(ask_once(&http(200, "", r#"{"output": null}"#)).await), Value::Null);
}

#[tokio::test]
async fn an_endless_answer_is_not_read_for_ever() {
    let server = Server::start(|mut conn| async move {
        conn.request().await;
        conn.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        let mut written = 0;
        while written < 1 << 30 && tokio::io::AsyncWriteExt::write_all(&mut conn.socket, chunk.as_bytes()).await.is_ok()
        {
            written += chunk.len();
        }
        assert!(written < 1 << 30, "nobody closed");
    })
    .await;
    let mut definition = definition(&server.url());
    definition.max_answer_bytes = 1 << 20;
    let broken = broken(ask_with(&open(&definition), json!(1)).await.0);
    assert_eq!(broken.meaning, unknown(Cause::CutShort));
    assert_eq!(broken.message, "the answer is longer than 1048576 bytes");
}

#[tokio::test]
async fn an_endless_error_answer_is_judged_by_its_status() {
    let server = Server::start(|mut conn| async move {
        conn.request().await;
        conn.write("HTTP/1.1 429 Slow down\r\nretry-after: 7\r\ncontent-length: 1000000\r\n\r\n{").await;
        while conn.write_some().await {}
    })
    .await;
    let broken = broken(ask(&server.url()).await.0);
    assert_eq!((broken.meaning, broken.retry_after_ms), (failed(FailureClass::Refused), Some(7000)));
}

#[tokio::test]
async fn a_slow_drip_is_read_to_its_end() {
    let server = Server::start(|mut conn| async move {
        conn.request().await;
        for byte in good().chars() {
            conn.write(&byte.to_string()).await;
            tokio::task::yield_now().await;
        }
        conn.closed().await;
    })
    .await;
    let (answer, phase) = ask(&server.url()).await;
    assert_eq!((output(answer), phase), (json!({"ok": true}), Phase::InBody));
}

#[tokio::test]
async fn a_deadline_finds_the_phase_as_it_is() {
    for (begun, phase) in [
        ("", Phase::AwaitingHeaders),
        ("HTTP/1.1 200 OK\r\n", Phase::AwaitingHeaders),
        ("HTTP/1.1 200 OK\r\n\r\n{", Phase::InBody),
    ] {
        let server = Server::start(move |mut conn| async move {
            conn.request().await;
            conn.write(begun).await;
            conn.closed().await;
        })
        .await;
        let provider = open(&definition(&server.url()));
        let request = provider.prepare(&call_with(json!(1))).unwrap();
        let progress = Progress::new();
        {
            let mut call = std::pin::pin!(provider.send(request, &progress));
            let reached = async {
                while progress.phase() != phase {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                answer = &mut call => panic!("{answer:?}"),
                reached = tokio::time::timeout(LIMIT, reached) => reached.unwrap(),
            }
            // It stays there: the time is up, and the answer has not come.
            assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
        }
        assert_eq!(progress.phase(), phase, "{begun:?}");
        assert_eq!(server.log.requests().len(), 1);
    }
}

#[tokio::test]
async fn redirects_are_never_followed() {
    let there = Server::answering(good()).await;
    for status in [301, 302, 303, 304, 307, 308] {
        let broken = broken(ask_once(&http(status, &format!("location: {}\r\n", there.url()), "")).await);
        let meaning =
            if status == 307 || status == 308 { failed(FailureClass::Invalid) } else { unknown(Cause::Status) };
        assert_eq!((broken.meaning, broken.status), (meaning, Some(status)));
        assert!(broken.message.contains("redirect"), "{}", broken.message);
    }
    assert_eq!(there.log.connections(), 0);
}

#[tokio::test]
async fn statuses_mean_what_the_failure_table_says() {
    let table = [
        (400, "", failed(FailureClass::Invalid)),
        (401, "", failed(FailureClass::Refused)),
        (404, "", failed(FailureClass::Refused)),
        (408, "", unknown(Cause::Status)),
        (409, "", unknown(Cause::Status)),
        (429, "", failed(FailureClass::Refused)),
        (500, "", unknown(Cause::Status)),
        (503, "", unknown(Cause::Status)),
        (503, "retry-after: 1\r\n", failed(FailureClass::Refused)),
        (504, "", unknown(Cause::Status)),
        (529, "", failed(FailureClass::Refused)),
    ];
    for (status, headers, meaning) in table {
        let broken = broken(ask_once(&http(status, headers, "{}")).await);
        assert_eq!((broken.meaning, broken.status), (meaning, Some(status)));
        assert_eq!(broken.message, format!("the provider answered with status {status}"));
    }
}

#[tokio::test]
async fn a_definition_moves_a_status_to_another_line() {
    let server = Server::saying(http(409, "", "")).await;
    let mut definition = definition(&server.url());
    definition.outcomes = vec![onejob_core::Override { status: 409, line: onejob_core::Line::Invalid }];
    assert_eq!(broken(ask_with(&open(&definition), json!(1)).await.0).meaning, failed(FailureClass::Invalid));
}

#[tokio::test]
async fn retry_after_is_read_in_every_form() {
    let in_a_minute = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(60));
    let table = [
        ("retry-after: 3".to_owned(), 3000..=3000),
        ("retry-after: 0".to_owned(), 0..=0),
        ("retry-after: 1.5".to_owned(), 1500..=1500),
        ("retry-after-ms: 250\r\nretry-after: 3".to_owned(), 250..=250),
        (format!("retry-after: {in_a_minute}"), 30_000..=60_000),
        ("retry-after: Thu, 01 Jan 1970 00:00:00 GMT".to_owned(), 0..=0),
        ("retry-after: 99999999999999999999".to_owned(), 86_400_000..=86_400_000),
    ];
    for (header, expected) in table {
        let broken = broken(ask_once(&http(429, &format!("{header}\r\n"), "")).await);
        assert!(broken.retry_after_ms.is_some_and(|ms| expected.contains(&ms)), "{header}: {broken:?}");
    }
    for header in ["retry-after: soon", "retry-after: -1", "retry-after: NaN", "x: 1"] {
        let broken = broken(ask_once(&http(503, &format!("{header}\r\n"), "")).await);
        assert_eq!((broken.retry_after_ms, broken.meaning), (None, unknown(Cause::Status)), "{header}");
    }
}

#[tokio::test]
async fn the_providers_own_words_are_given_short_and_without_secrets() {
    let table = [
        (r#"{"error": {"message": "Rate limit"}}"#, "Rate limit"),
        (r#"{"error": "no"}"#, "no"),
        (r#"{"message": "line\none"}"#, "line one"),
        (r#"{"detail": "bad key sk-hunter2 given"}"#, "bad key *** given"),
        (r#"{"errors": [{"message": "first"}]}"#, "first"),
        (r#"{"type": "about:blank", "title": "Not today"}"#, "Not today"),
        ("<html>", "the provider answered with status 429"),
    ];
    for (body, message) in table {
        assert_eq!(broken(ask_once(&http(429, "", body)).await).message, message);
    }
    let long = json!({"error": "x".repeat(5000)}).to_string();
    assert_eq!(broken(ask_once(&http(400, "", &long)).await).message.chars().count(), 301);
}

#[tokio::test]
async fn an_interim_answer_is_passed_over() {
    let answer = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n{}", good());
    assert_eq!(output(ask_once(&answer).await), json!({"ok": true}));
}

#[tokio::test]
async fn an_empty_answer_is_null_where_nothing_is_taken_from_it() {
    for answer in [http(200, "", ""), "HTTP/1.1 204 No Content\r\n\r\n".to_owned()] {
        let server = Server::saying(answer).await;
        let mut definition = definition(&server.url());
        definition.response.output = None;
        assert_eq!(output(ask_with(&open(&definition), json!(1)).await.0), Value::Null);
    }
}

#[tokio::test]
async fn without_an_output_template_the_whole_body_is_the_output() {
    let server = Server::answering(http(200, "", r#"{"b": 9007199254740993, "a": 0.10}"#)).await;
    let mut definition = definition(&server.url());
    definition.response.output = None;
    let whole = output(ask_with(&open(&definition), json!(1)).await.0);
    assert_eq!(whole.to_string(), r#"{"b":9007199254740993,"a":0.10}"#);
}

#[tokio::test]
async fn a_handle_means_that_the_provider_works_on() {
    let server = Server::answering(http(202, "location: /jobs/7\r\n", r#"{"id": 77, "status": "queued"}"#)).await;
    let mut definition = definition(&server.url());
    for (handle, expected) in [("{{ body.id }}", "77"), ("{{ headers.location | replace('/jobs/', '') }}", "7")] {
        definition.response = ResponseDefinition { handle: Some(template(json!(handle))), ..Default::default() };
        let answer = ask_with(&open(&definition), json!(1)).await.0;
        assert!(matches!(&answer, Answer::Accepted { handle, .. } if &**handle == expected), "{answer:?}");
    }
    definition.response = ResponseDefinition { handle: Some(template(json!("{{ body.no }}"))), ..Default::default() };
    assert_eq!(broken(ask_with(&open(&definition), json!(1)).await.0).meaning, failed(FailureClass::BrokenContract));
}

#[tokio::test]
async fn a_2xx_answer_may_report_failure_or_a_cut_output() {
    let server =
        Server::answering(http(200, "", r#"{"output": "x", "state": "error", "why": "no GPU", "end": "length"}"#))
            .await;
    let mut definition = definition(&server.url());
    definition.response.truncated = Some(template(json!("{{ body.end == 'length' }}")));
    let cut = broken(ask_with(&open(&definition), json!(1)).await.0);
    assert_eq!((cut.meaning, cut.status), (failed(FailureClass::BrokenContract), Some(200)));
    definition.response.failed = Some(template(json!("{{ body.state == 'error' }}")));
    definition.response.error = Some(template(json!("{{ body.why }}")));
    let broken = broken(ask_with(&open(&definition), json!(1)).await.0);
    assert_eq!((broken.meaning, broken.message.as_str()), (failed(FailureClass::FailedThere), "no GPU"));
}

#[tokio::test]
async fn model_and_usage_are_seen() {
    let server =
        Server::answering(http(200, "", r#"{"output": 1, "model": "m-1", "usage": {"in": 12, "out": null}}"#)).await;
    let mut definition = definition(&server.url());
    definition.response.model = Some(template(json!("{{ body.model }}")));
    definition.response.usage =
        Some(template(json!({"input_tokens": "{{ body.usage.in }}", "output_tokens": "{{ body.usage.out }}"})));
    let Answer::Done { seen, .. } = ask_with(&open(&definition), json!(1)).await.0 else { panic!("no answer") };
    assert_eq!(seen.model.as_deref(), Some("m-1"));
    assert_eq!(seen.usage, Some(onejob_core::Usage { input_tokens: Some(12), output_tokens: None }));
}

#[tokio::test]
async fn templates_over_an_answer_never_see_a_secret() {
    let server = Server::answering(good()).await;
    let mut definition = definition(&server.url());
    definition.response.output =
        Some(template(json!({"key": "{{ secret.api_key }}", "in": "{{ input.x }}", "job": "{{ job.owner }}"})));
    assert_eq!(output(ask_with(&open(&definition), json!({"x": 1})).await.0), json!({"in": 1, "job": "user_1"}));
}

/// A connection that breaks under the first write, with an answer that came before.
struct Slammed {
    answer: &'static [u8],
    broke: bool,
    reader: Option<std::task::Waker>,
}

impl AsyncRead for Slammed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.broke {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        buffer.put_slice(std::mem::take(&mut self.answer));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Slammed {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.broke = true;
        self.reader.take().into_iter().for_each(std::task::Waker::wake);
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_answer_given_before_the_request_was_read_counts_though_the_connection_is_reset() {
    let answer = b"HTTP/1.1 429 Not now\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    let wire = Wire::default();
    let stream = Watched::new(Slammed { answer, broke: false, reader: None }, wire.clone());
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let progress = Progress::new();
    wire.begin(progress.clone(), false);
    let request = hyper::Request::post("/").body(Sent::new("much".into(), wire.clone())).unwrap();
    let answer = tokio::time::timeout(LIMIT, sender.send_request(request)).await.unwrap().unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(progress.phase(), Phase::Sending, "it was not sent as a whole");
    assert!(wire.is_deaf(), "nothing else is sent on it");
}
