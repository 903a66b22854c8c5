//! Gathering: a batch is what arrived while the last one was in flight. Nobody waits for more to come.

use std::time::Duration;

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

/// What a command carries.
pub(super) trait Weigh {
    /// The bytes of its payloads.
    fn bytes(&self) -> usize;
}

/// What has arrived, as soon as anything has; `None` when nobody can put anything in any more and
/// everything was taken out.
pub(super) async fn next_batch<T: Weigh>(queue: &flume::Receiver<T>) -> Option<Vec<T>> {
    let first = queue.recv_async().await.ok()?;
    let mut bytes = first.bytes();
    let mut batch = vec![first];
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
