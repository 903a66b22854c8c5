use super::super::connect::Origin;
use super::super::pool::Connection;
use super::server::{Conn, Server};
use super::*;

#[tokio::test]
async fn a_good_answer_is_read_and_the_connection_used_again() {
    let server = Server::answering(good()).await;
    let provider = open(&definition(&server.url()));
    for _ in 0..3 {
        let (answer, phase) = ask_with(&provider, json!({"x": 1})).await;
        assert_eq!(output(answer), json!({"ok": true}));
        assert_eq!(phase, Phase::InBody);
    }
    assert_eq!((server.log.requests().len(), server.log.connections()), (3, 1));
}

#[tokio::test]
async fn a_refused_port_sends_nothing() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    let (answer, phase) = ask(&format!("http://127.0.0.1:{port}/v1/do?key=secret-path")).await;
    let broken = broken(answer);
    assert_eq!(broken.meaning, failed(FailureClass::NotSent));
    assert_eq!(broken.message, format!("cannot connect to 127.0.0.1:{port}: connection refused"));
    assert_eq!(phase, Phase::BeforeConnect);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_sends_nothing() {
    let (answer, phase) = ask("http://nowhere.invalid/v1/do").await;
    let broken = broken(answer);
    assert_eq!(broken.meaning, failed(FailureClass::NotSent));
    assert_eq!(broken.message, "cannot connect to nowhere.invalid:80: the name cannot be resolved");
    assert_eq!(phase, Phase::BeforeConnect);
}

/// A listener whose queue is full does not answer: the client's SYN goes unheard.
async fn deaf_listener() -> (std::net::TcpListener, Vec<tokio::net::TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = std::net::TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let (mut fillers, mut unheard) = (Vec::new(), 0);
    while unheard < 2 {
        let connecting = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connecting).await {
            Ok(connected) => fillers.push(connected.unwrap()),
            Err(_) => unheard += 1,
        }
    }
    (listener, fillers)
}

#[tokio::test]
async fn a_connect_timeout_sends_nothing() {
    let (listener, _fillers) = deaf_listener().await;
    let mut definition = definition(&format!("http://{}/", listener.local_addr().unwrap()));
    definition.connect_timeout = Duration::from_millis(200);
    let (answer, phase) = ask_with(&open(&definition), json!(1)).await;
    let broken = broken(answer);
    assert_eq!(broken.meaning, failed(FailureClass::NotSent));
    assert!(broken.message.contains("no answer") || broken.message.contains("within 200ms"), "{}", broken.message);
    assert_eq!(phase, Phase::BeforeConnect);
}

#[tokio::test]
async fn a_dead_address_leaves_time_for_the_next() {
    let (dead, _fillers) = deaf_listener().await;
    let alive = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [dead.local_addr().unwrap(), alive.local_addr().unwrap()];
    let until = tokio::time::Instant::now() + Duration::from_secs(1);
    let opened = tokio::time::timeout_at(until, super::super::connect::open_tcp(&addresses, until)).await;
    let stream = opened.unwrap().unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
    assert!(super::super::connect::open_tcp(&[], until).await.unwrap_err().contains("no address"));
}

#[tokio::test]
async fn a_call_dropped_before_its_connection_sends_nothing() {
    let (listener, _fillers) = deaf_listener().await;
    let provider = open(&definition(&format!("http://{}/", listener.local_addr().unwrap())));
    let request = provider.prepare(&call_with(json!(1))).unwrap();
    let progress = Progress::new();
    assert!(tokio::time::timeout(Duration::from_millis(100), provider.send(request, &progress)).await.is_err());
    assert_eq!(progress.phase(), Phase::BeforeConnect);
}

#[tokio::test]
async fn a_call_dropped_anywhere_has_sent_nothing_unless_its_progress_says_so() {
    let server = Server::answering(good()).await;
    let provider = open(&definition(&server.url()));
    let mut may_have_sent = 0;
    for polls in 0..40 {
        let request = provider.prepare(&call_with(json!("dropped"))).unwrap();
        let progress = Progress::new();
        {
            let mut call = std::pin::pin!(provider.send(request, &progress));
            for _ in 0..polls {
                if poll_once(call.as_mut()).await.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        may_have_sent += usize::from(progress.phase() != Phase::BeforeConnect);
    }
    // The server reads in the order of arrival: when this one is answered, whatever came is counted.
    assert_eq!(output(ask_with(&provider, json!("last")).await.0), json!({"ok": true}));
    let dropped = server.log.requests().iter().filter(|request| request.ends_with(r#"{"do":"dropped"}"#)).count();
    assert!(dropped <= may_have_sent && may_have_sent < 40, "{dropped} came of {may_have_sent}");
}

/// Polls once.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn an_idle_connection_that_the_provider_closed_is_not_used() {
    let server = Server::saying(good()).await;
    let provider = open(&definition(&server.url()));
    for _ in 0..20 {
        assert_eq!(output(ask_with(&provider, json!(1)).await.0), json!({"ok": true}));
    }
    assert_eq!((server.log.requests().len(), server.log.connections()), (20, 20));
}

#[tokio::test]
async fn an_idle_connection_that_the_provider_reset_or_spoke_on_is_not_used() {
    for unasked in [None, Some(http(408, "connection: close\r\n", ""))] {
        let (done, gone) = (shared(tokio::sync::Notify::new()), shared(tokio::sync::Notify::new()));
        let (may_go, is_gone) = (done.clone(), gone.clone());
        let server = Server::start(move |mut conn: Conn| {
            let (may_go, is_gone, unasked) = (may_go.clone(), is_gone.clone(), unasked.clone());
            async move {
                conn.request().await;
                conn.write(&good()).await;
                may_go.notified().await;
                match unasked {
                    Some(text) => {
                        conn.write(&text).await;
                        is_gone.notify_one();
                        conn.closed().await;
                    }
                    None => {
                        conn.reset();
                        is_gone.notify_one();
                    }
                }
            }
        })
        .await;
        let provider = open(&definition(&server.url()));
        for _ in 0..5 {
            assert_eq!(output(ask_with(&provider, json!(1)).await.0), json!({"ok": true}));
            done.notify_one();
            gone.notified().await;
        }
        assert_eq!((server.log.requests().len(), server.log.connections()), (5, 5));
    }
}

#[tokio::test]
async fn a_connection_whose_call_was_dropped_is_closed_and_not_used() {
    let server = Server::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
        conn.log.until(2).await;
    })
    .await;
    let provider = open(&definition(&server.url()));
    for attempt in 1..=2 {
        let request = provider.prepare(&call_with(json!(attempt))).unwrap();
        let progress = Progress::new();
        tokio::select! {
            _ = provider.send(request, &progress) => panic!("no answer was given"),
            () = server.log.until(attempt) => {}
        }
        assert_eq!(progress.phase(), Phase::AwaitingHeaders);
    }
    assert_eq!((server.log.requests().len(), server.log.connections()), (2, 2));
}

#[tokio::test]
async fn calls_side_by_side_have_a_connection_each_and_reach_the_provider_once() {
    let server = Server::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.log.until(8).await;
            conn.write(&good()).await;
        }
    })
    .await;
    let provider = shared(open(&definition(&server.url())));
    for round in 1..=3 {
        let calls: Vec<_> = (0..8)
            .map(|n| {
                let provider = provider.clone();
                tokio::spawn(async move { output(ask_with(&provider, json!(n)).await.0) })
            })
            .collect();
        for call in calls {
            assert_eq!(call.await.unwrap(), json!({"ok": true}));
        }
        assert_eq!(server.log.requests().len(), 8 * round);
    }
    assert_eq!(server.log.connections(), 8);
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while() {
    let (said, hears) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |mut conn| {
        let said = said.clone();
        async move {
            while conn.request().await.is_some() {
                conn.write(&good()).await;
            }
            let _ = said.send(());
        }
    })
    .await;
    let provider = open(&definition(&server.url()));
    assert_eq!(output(ask_with(&provider, json!(1)).await.0), json!({"ok": true}));
    let mut hears = hears;
    // From here on nothing but timers is waited for, and they come at once.
    tokio::time::pause();
    assert_eq!(tokio::time::timeout(super::super::pool::LONGEST_IDLE * 3, hears.recv()).await, Ok(Some(())));
}

/// Gives one good answer per connection, closes, and says so; in a thread of its own, so that the
/// client's runtime hears of it only when it looks.
fn closing_server() -> (u16, std::sync::mpsc::Receiver<()>) {
    use std::io::{BufRead, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (said, closed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut reader = std::io::BufReader::new(socket.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
                length = line.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            reader.get_mut().write_all(good().as_bytes()).unwrap();
            drop(reader);
            if said.send(()).is_err() {
                return;
            }
        }
    });
    (port, closed)
}

#[tokio::test]
async fn a_close_that_the_runtime_has_not_heard_of_is_seen_before_the_connection_is_used() {
    let (port, closed) = closing_server();
    let provider = open(&definition(&format!("http://127.0.0.1:{port}/")));
    for _ in 0..20 {
        assert_eq!(output(ask_with(&provider, json!(1)).await.0), json!({"ok": true}));
        // Blocks the runtime on purpose.
        closed.recv_timeout(LIMIT).unwrap();
    }
}

#[tokio::test]
async fn a_server_that_speaks_first_is_sent_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (said, spoke) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut socket = listener.accept().unwrap().0;
        socket.write_all(b"220 mail ready\r\n").unwrap();
        said.send(()).unwrap();
        let mut received = Vec::new();
        let _ = socket.read_to_end(&mut received);
        received
    });
    let provider = open(&definition(&format!("http://127.0.0.1:{port}/")));
    let request = provider.prepare(&call_with(json!(1))).unwrap();
    let progress = Progress::new();
    let mut call = Box::pin(provider.send(request, &progress));
    assert!(poll_once(call.as_mut()).await.is_none());
    // Blocks the runtime on purpose: when it looks, the greeting is there.
    spoke.recv_timeout(LIMIT).unwrap();
    let broken = broken(call.await);
    assert_eq!((broken.meaning, progress.phase()), (failed(FailureClass::NotSent), Phase::BeforeConnect));
    assert_eq!(server.join().unwrap(), b"");
}

/// A connection whose peer closes it at once, and word of that.
async fn closing_peer(provider: &HttpProvider) -> (Origin, Connection, std::sync::mpsc::Receiver<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (said, closed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(listener.accept().unwrap());
        said.send(()).unwrap();
    });
    let origin = Origin { secure: false, host: "127.0.0.1".to_owned(), port };
    let connection = provider.connector.connect(&origin).await.unwrap();
    (origin, connection, closed)
}

#[tokio::test]
async fn the_operating_system_is_asked_whether_an_idle_connection_is_open() {
    let provider = open(&definition("http://127.0.0.1/"));
    let (origin, connection, closed) = closing_peer(&provider).await;
    provider.pool.put(origin.clone(), connection).await;
    closed.recv_timeout(LIMIT).unwrap();
    assert!(provider.pool.take(&origin).await.is_none());
}

#[tokio::test]
async fn a_connection_that_proves_closed_has_taken_nothing() {
    let provider = open(&definition("http://127.0.0.1/"));
    let (_, mut connection, closed) = closing_peer(&provider).await;
    closed.recv_timeout(LIMIT).unwrap();
    // Parks the runtime, which then hears of it.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let progress = Progress::new();
    let request = provider.prepare(&call_with(json!(1))).unwrap();
    let lost = connection.ask(&request, &progress).await.err().unwrap();
    assert_eq!(lost.observation, onejob_core::Observation::Broken { phase: Phase::BeforeConnect });
    assert!(connection.nothing_was_sent());
}

#[tokio::test]
async fn a_provider_that_drops_what_comes_on_a_used_connection_is_asked_on_new_ones_only() {
    let server = Server::start(|mut conn: Conn| async move {
        conn.request().await;
        conn.write(&good()).await;
        conn.request().await;
        conn.reset();
    })
    .await;
    let provider = open(&definition(&server.url()));
    let mut lost = 0;
    for n in 0..6 {
        match ask_with(&provider, json!(n)).await.0 {
            Answer::Broken { meaning, .. } => {
                assert_eq!(meaning, unknown(Cause::ConnectionLost));
                lost += 1;
            }
            other => assert_eq!(output(other), json!({"ok": true})),
        }
    }
    assert_eq!((lost, server.log.connections()), (1, 5), "it happens once, not at every second call");
}

#[tokio::test]
async fn a_provider_that_talks_unasked_is_asked_on_new_connections_only() {
    let talk = shared(tokio::sync::Notify::new());
    let said = shared(tokio::sync::Notify::new());
    let (ask_to_talk, has_said) = (talk.clone(), said.clone());
    let server = Server::start(move |mut conn: Conn| {
        let (talk, said) = (talk.clone(), said.clone());
        async move {
            while conn.request().await.is_some() {
                conn.write(&good()).await;
                talk.notified().await;
                conn.write(&http(200, "", r#"{"output": "of another job"}"#)).await;
                said.notify_one();
            }
        }
    })
    .await;
    let provider = open(&definition(&server.url()));
    assert_eq!(output(ask_with(&provider, json!(1)).await.0), json!({"ok": true}));
    ask_to_talk.notify_one();
    has_said.notified().await;
    for n in 2..5 {
        assert_eq!(output(ask_with(&provider, json!(n)).await.0), json!({"ok": true}));
    }
    assert_eq!(server.log.connections(), 4, "each call had a connection of its own");
}

#[tokio::test(start_paused = true)]
async fn how_long_a_provider_keeps_connections_is_learned_and_forgotten_again() {
    let mut waiting = super::super::pool::Waiting::default();
    assert_eq!(waiting.longest_idle(), Duration::from_secs(5));
    waiting.learn(Duration::from_secs(1));
    waiting.learn(Duration::from_secs(2));
    assert_eq!(waiting.longest_idle(), Duration::from_secs(1), "the shorter of two");
    tokio::time::advance(Duration::from_secs(59 * 60)).await;
    assert_eq!(waiting.longest_idle(), Duration::from_secs(1));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(waiting.longest_idle(), Duration::from_secs(5), "providers change");
}
