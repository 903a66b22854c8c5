//! A wire between a store and its database that can be cut at the one moment when it hurts: while a commit
//! is on its way.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A COMMIT as it stands on the wire: a simple query.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// As many bytes of a connection's beginning hold its application's name.
const GREETING: usize = 512;

/// What happens to a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// It never reaches the server.
    Lost,
    /// The server commits, and its answer never arrives.
    Unanswered,
}

#[derive(Default)]
struct State {
    cuts: Mutex<Vec<Cut>>,
    done: AtomicU32,
    is_away: AtomicBool,
    swallowed: Mutex<Option<Vec<u8>>>,
}

/// A proxy on a port of its own.
#[derive(Clone)]
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

impl State {
    /// Whether a connection that began with these bytes leads nowhere.
    fn swallows(&self, greeting: &[u8]) -> bool {
        let swallowed = self.swallowed.lock().unwrap();
        swallowed.as_ref().is_some_and(|name| greeting.windows(name.len()).any(|window| window == &name[..]))
    }
}

impl Proxy {
    pub async fn before(server_port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let state = proxy.state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if state.is_away.load(Ordering::SeqCst) {
                    continue;
                }
                let state = state.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { return };
                    relay(client, server, &state).await;
                });
            }
        });
        proxy
    }

    /// The next commits are cut, one each.
    pub fn cut(&self, cuts: &[Cut]) {
        self.state.cuts.lock().unwrap().extend(cuts);
    }

    /// How many commits were cut.
    pub fn cut_so_far(&self) -> u32 {
        self.state.done.load(Ordering::SeqCst)
    }

    /// From now on nothing gets through, or everything does.
    pub fn be_away(&self, is_away: bool) {
        self.state.is_away.store(is_away, Ordering::SeqCst);
    }

    /// From now on what is said on the connections of this application vanishes, and they look alive.
    pub fn swallow(&self, application: &str) {
        *self.state.swallowed.lock().unwrap() = Some(application.as_bytes().to_vec());
    }

    /// What is said arrives again, on the connections that are made from now on.
    pub fn swallow_nothing(&self) {
        *self.state.swallowed.lock().unwrap() = None;
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, state: &State) {
    let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
    let mut greeting = Vec::new();
    let mut leads_nowhere = false;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(count @ 1..) = read else { return };
                if state.is_away.load(Ordering::SeqCst) {
                    return;
                }
                let bytes = &from_client[..count];
                if greeting.len() < GREETING {
                    greeting.extend_from_slice(bytes);
                }
                leads_nowhere |= state.swallows(&greeting);
                if leads_nowhere {
                    continue;
                }
                let commits = bytes.windows(COMMIT.len()).any(|window| window == COMMIT);
                let cut = if commits { state.cuts.lock().unwrap().pop() } else { None };
                if cut != Some(Cut::Lost) && server.write_all(bytes).await.is_err() {
                    return;
                }
                if let Some(cut) = cut {
                    if cut == Cut::Unanswered {
                        let _ = server.read(&mut from_server).await;
                    }
                    state.done.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(count @ 1..) = read else { return };
                leads_nowhere |= state.swallows(&greeting);
                if leads_nowhere {
                    continue;
                }
                if state.is_away.load(Ordering::SeqCst) || client.write_all(&from_server[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
