//! Gathering: a batch is what arrived while the last one was in flight. Nobody waits for more to come.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::command::Key;

/// The most commands in one transaction: beyond this another saves little, and the first has waited
/// long enough.
const LARGEST_BATCH: usize = 512;

/// The most bytes of payloads in one transaction, beside those of its last command: a message to the
/// server is held in memory on both sides.
const HEAVIEST_BATCH: usize = 4 << 20;

/// How many commands may wait before their callers do: a few of the largest batches.
pub(super) const QUEUE: usize = 4_096;

/// How often a transaction is run again that met another one.
pub(super) const RETRIES: u32 = 10;

/// Into how many parts a batch is cut that waits for one of its members: of the largest, it is found after
/// three cuts, so that nobody waits beside it for long.
const PARTS: usize = 8;

/// How many that met somebody else's rows may wait for them, and on how many connections.
const WAITING_ALONE: usize = 256;
pub(super) const ALONE: usize = 4;

/// How long a key that could not be had is asked for alone.
const ASKED_ALONE: Duration = Duration::from_secs(5);

/// Those that wait for a row that somebody else holds: they wait alone, and nobody waits with them.
pub(super) struct Waiting {
    room: Arc<Semaphore>,
    keys: Mutex<HashMap<Key, Instant>>,
}

impl Waiting {
    pub(super) fn new() -> Waiting {
        Waiting { room: Arc::new(Semaphore::new(WAITING_ALONE)), keys: Mutex::default() }
    }

    /// A place, unless too many wait already.
    pub(super) fn enter(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().ok()
    }

    /// From now on for a while this key is asked for alone.
    pub(super) fn note(&self, key: Key) {
        let now = Instant::now();
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, until| now < *until);
        keys.insert(key, now + ASKED_ALONE);
    }

    /// The keys to be asked for alone, if there are any.
    pub(super) fn keys(&self) -> HashSet<Key> {
        let now = Instant::now();
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().filter(|(_, until)| now < **until).map(|(key, _)| key.clone()).collect()
    }
}

/// A batch in parts.
pub(super) fn parts<T>(mut batch: Vec<T>) -> Vec<Vec<T>> {
    let length = batch.len().div_ceil(PARTS).max(1);
    let mut parts = Vec::new();
    while batch.len() > length {
        let rest = batch.split_off(length);
        parts.push(std::mem::replace(&mut batch, rest));
    }
    parts.push(batch);
    parts.reverse();
    parts
}

/// What a command carries.
pub(super) trait Weigh {
    /// The bytes of its payloads.
    fn bytes(&self) -> usize;
}

/// How often the tasks that can run get their turn before a batch leaves: those whom the last commit woke
/// are about to send more. Without it a few of them share a commit that most of them miss; a turn takes
/// microseconds, and more of them bring nothing.
const TURNS: usize = 8;

/// What has arrived, as soon as anything has; `None` when nobody can put anything in any more and
/// everything was taken out.
pub(super) async fn next_batch<T: Weigh>(queue: &flume::Receiver<T>) -> Option<Vec<T>> {
    let first = queue.recv_async().await.ok()?;
    let mut bytes = first.bytes();
    let mut batch = vec![first];
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    while batch.len() < LARGEST_BATCH && bytes < HEAVIEST_BATCH {
        let Ok(next) = queue.try_recv() else { break };
        bytes += next.bytes();
        batch.push(next);
    }
    Some(batch)
}

/// A pause before a transaction that met another one is run again: longer from time to time, and never
/// the same for both.
pub(super) async fn step_aside(tries: u32) {
    let most_us = 500_u64 << tries.min(8);
    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..most_us))).await;
}
