//! Connections and the few that wait to be used again.
//!
//! No task stands behind a connection: whoever uses it drives it. So when a call is dropped its
//! connection is gone with it, and nothing that was not written yet is ever written.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::connect::{Origin, Socket, Stream};
use super::wire::{Sent, Watched, Wire};

/// How long a connection may wait for its next request. Most servers keep idle connections for at
/// least this long; the shorter it is, the rarer a request meets a connection that is being closed.
pub(super) const LONGEST_IDLE: Duration = Duration::from_secs(5);

/// How long it is remembered that a provider does not keep its connections well.
const LESSON_LASTS: Duration = Duration::from_secs(60 * 60);

type Driver = Pin<Box<http1::Connection<TokioIo<Watched<Stream>>, Sent>>>;

/// One connection to a provider, carrying one request at a time.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Sent>,
    pub(super) wire: Wire,
    /// Gone when hyper is done with the connection.
    driver: Option<Driver>,
    socket: Socket,
}

/// What may be expected of a connection between two requests.
enum Condition {
    Usable,
    Closed,
    /// The peer said something that nobody asked for: an answer on it might be another request's.
    Talking,
}

impl Connection {
    /// Speaks HTTP/1.1 over a stream.
    pub(super) async fn over(stream: Stream) -> Result<Connection, String> {
        let wire = Wire::default();
        let socket = stream.socket();
        let io = TokioIo::new(Watched::new(stream, wire.clone()));
        let (sender, driver) =
            http1::Builder::new().handshake(io).await.map_err(|_| "the connection broke".to_owned())?;
        Ok(Connection { sender, wire, driver: Some(Box::pin(driver)), socket })
    }

    /// Drives the connection until `what`, which happens on it, is ready.
    pub(super) async fn drive<F: Future>(&mut self, what: F) -> F::Output {
        let mut what = pin!(what);
        poll_fn(|cx| {
            if let Some(driver) = &mut self.driver
                && driver.as_mut().poll(cx).is_ready()
            {
                // Dropping it also fails a request that still waits inside.
                self.driver = None;
            }
            what.as_mut().poll(cx)
        })
        .await
    }

    /// No byte of the present request was written, not even tried.
    pub(super) fn nothing_was_sent(&self) -> bool {
        !self.wire.has_begun()
    }

    /// Whether another request may be sent on it now: the last one is over, and the peer has
    /// neither closed the connection nor said anything unasked.
    async fn condition(&mut self) -> Condition {
        let ready = poll_fn(|cx| {
            let open = match &mut self.driver {
                Some(driver) => driver.as_mut().poll(cx).is_pending(),
                None => false,
            };
            Poll::Ready(open)
        });
        match ready.await && self.sender.is_ready() && self.socket.is_quiet() && !self.wire.is_deaf() {
            true => Condition::Usable,
            false if self.wire.has_read() => Condition::Talking,
            false => Condition::Closed,
        }
    }
}

/// Connections that wait for their next request.
pub(super) struct Pool {
    idle: Mutex<Waiting>,
    capacity: usize,
}

#[derive(Default)]
pub(super) struct Waiting {
    connections: Vec<Idle>,
    /// A task runs that closes what waits too long.
    is_watched: bool,
    lesson: Option<Lesson>,
}

/// That the provider closes connections which wait, sooner than we do, and does not say so. A request
/// that meets such a connection is lost, and its attempt unknown.
struct Lesson {
    longest_idle: Duration,
    since: Instant,
}

struct Idle {
    origin: Origin,
    connection: Connection,
    since: Instant,
}

impl Pool {
    pub(super) fn new(capacity: usize) -> Arc<Pool> {
        Arc::new(Pool { idle: Mutex::default(), capacity })
    }

    /// A connection to `origin` that is usable at this moment.
    pub(super) async fn take(&self, origin: &Origin) -> Option<Connection> {
        loop {
            let Idle { mut connection, since, .. } = self.youngest(origin)?;
            match connection.condition().await {
                Condition::Usable => return Some(connection),
                // It was closed at some time since; half of that keeps a distance.
                Condition::Closed => self.idle().learn(since.elapsed() / 2),
                Condition::Talking => self.idle().learn(Duration::ZERO),
            }
        }
    }

    /// A request was lost on a connection that had seemed usable: nothing is sent on any but new ones
    /// for a while, so that this does not happen again and again.
    pub(super) fn was_deceived(&self) {
        self.idle().learn(Duration::ZERO);
    }

    fn youngest(&self, origin: &Origin) -> Option<Idle> {
        let mut idle = self.idle();
        idle.close_expired();
        let at = idle.connections.iter().rposition(|waiting| waiting.origin == *origin)?;
        Some(idle.connections.remove(at))
    }

    /// Keeps a connection whose request was answered, if it can be used again.
    pub(super) async fn put(self: &Arc<Self>, origin: Origin, mut connection: Connection) {
        connection.wire.end();
        match connection.condition().await {
            Condition::Usable => {}
            // It may have said so: that is no lesson.
            Condition::Closed => return,
            Condition::Talking => return self.idle().learn(Duration::ZERO),
        }
        let mut idle = self.idle();
        if idle.connections.len() < self.capacity && !idle.longest_idle().is_zero() {
            idle.connections.push(Idle { origin, connection, since: Instant::now() });
            if !std::mem::replace(&mut idle.is_watched, true) {
                self.close_idle_in_time();
            }
        }
    }

    /// Closes what nobody comes back for. The task ends with the last idle connection, or the pool.
    fn close_idle_in_time(self: &Arc<Self>) {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LONGEST_IDLE).await;
                let Some(pool) = pool.upgrade() else { return };
                let mut idle = pool.idle();
                idle.close_expired();
                if idle.connections.is_empty() {
                    idle.is_watched = false;
                    return;
                }
            }
        });
    }

    fn idle(&self) -> MutexGuard<'_, Waiting> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn close_expired(&mut self) {
        let longest = self.longest_idle();
        self.connections.retain(|idle| idle.since.elapsed() < longest);
    }

    pub(super) fn longest_idle(&mut self) -> Duration {
        self.lesson.take_if(|lesson| lesson.since.elapsed() >= LESSON_LASTS);
        self.lesson.as_ref().map_or(LONGEST_IDLE, |lesson| lesson.longest_idle)
    }

    pub(super) fn learn(&mut self, longest_idle: Duration) {
        let longest_idle = longest_idle.min(self.longest_idle());
        self.lesson = Some(Lesson { longest_idle, since: Instant::now() });
    }
}
