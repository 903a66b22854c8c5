//! A server that does on its sockets whatever a test says, and counts what reached it.

use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A listening server; it ends when dropped.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) log: Arc<Log>,
    _accepting: JoinSet<()>,
}

/// What reached a server.
#[derive(Default)]
pub(super) struct Log {
    requests: Mutex<Vec<String>>,
    connections: Mutex<usize>,
    news: Notify,
}

impl Log {
    /// All requests so far, head and body as they came.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// Waits until so many requests have come.
    pub(super) async fn until(&self, requests: usize) {
        loop {
            let news = self.news.notified();
            if self.requests.lock().unwrap().len() >= requests {
                return;
            }
            news.await;
        }
    }
}

/// One connection to the server.
pub(super) struct Conn<S = TcpStream> {
    pub(super) socket: S,
    pub(super) log: Arc<Log>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conn<S> {
    /// Reads one whole request; `None` if the client closes.
    pub(super) async fn request(&mut self) -> Option<String> {
        let head = self.head().await?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.socket.read_exact(&mut body).await.ok()?;
        let request = format!("{head}{}", String::from_utf8_lossy(&body));
        self.log.requests.lock().unwrap().push(request.clone());
        self.log.news.notify_waiters();
        Some(request)
    }

    /// Reads the head of a request only.
    pub(super) async fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.socket.read_u8().await.ok()?);
        }
        Some(String::from_utf8_lossy(&head).into_owned())
    }

    /// Writes; the client may be gone.
    pub(super) async fn write(&mut self, text: &str) {
        let _ = self.socket.write_all(text.as_bytes()).await;
        let _ = self.socket.flush().await;
    }

    /// Writes a little; false if the client is gone.
    pub(super) async fn write_some(&mut self) -> bool {
        self.socket.write_all(&[b' '; 1024]).await.is_ok()
    }

    /// Waits until the client closes.
    pub(super) async fn closed(&mut self) {
        let mut rest = Vec::new();
        let _ = self.socket.read_to_end(&mut rest).await;
    }
}

impl Conn {
    /// Ends the connection as a crashed machine does.
    pub(super) fn reset(self) {
        socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

impl Server {
    /// Runs `script` for every connection.
    pub(super) async fn start<F, Fut>(script: F) -> Server
    where
        F: Fn(Conn) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Log::default());
        let shared = log.clone();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut scripts = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                *shared.connections.lock().unwrap() += 1;
                scripts.spawn(script(Conn { socket, log: shared.clone() }));
            }
        });
        Server { port, log, _accepting: accepting }
    }

    /// Answers every request with the same bytes.
    pub(super) async fn answering(answer: impl Into<String>) -> Server {
        let answer = answer.into();
        Server::start(move |mut conn| {
            let answer = answer.clone();
            async move {
                while conn.request().await.is_some() {
                    conn.write(&answer).await;
                }
            }
        })
        .await
    }

    /// Answers the first request with these bytes and closes.
    pub(super) async fn saying(answer: impl Into<String>) -> Server {
        let answer = answer.into();
        Server::start(move |mut conn| {
            let answer = answer.clone();
            async move {
                conn.request().await;
                conn.write(&answer).await;
            }
        })
        .await
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/do", self.port)
    }
}
