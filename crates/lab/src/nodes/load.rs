//! Callers who post one key after the other, each until it is acknowledged, at whatever node answers, and
//! keep what was acknowledged.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Answer, Caller, until};

/// Ids by key.
pub type Acknowledged = HashMap<String, String>;

#[derive(Default)]
struct Counts {
    is_over: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

pub struct Load {
    counts: Arc<Counts>,
    callers: JoinSet<Acknowledged>,
}

impl Load {
    pub fn start(ports: &[u16], callers: usize) -> Load {
        let counts = Arc::new(Counts::default());
        let mut load = Load { counts: counts.clone(), callers: JoinSet::new() };
        for number in 0..callers {
            let nodes = ports.iter().map(|port| (Caller::hasty(*port), Instant::now())).collect();
            let next = number % ports.len();
            let one = One { number, nodes, next, counts: counts.clone(), acknowledged: Acknowledged::new() };
            load.callers.spawn(one.run());
        }
        load
    }

    /// Returns when so many more keys were acknowledged.
    pub async fn go_on_for(&self, more: u64) {
        let least = self.counts.acknowledged.load(Ordering::SeqCst) + more;
        let counts = &self.counts;
        until("the callers get on", || async { counts.acknowledged.load(Ordering::SeqCst) >= least }).await;
    }

    /// Returns when so many more posts were answered with 503.
    pub async fn until_refused(&self, more: u64) {
        let least = self.counts.refused.load(Ordering::SeqCst) + more;
        let counts = &self.counts;
        until("a post is answered with 503", || async { counts.refused.load(Ordering::SeqCst) >= least }).await;
    }

    /// Each caller ends with the key that it is about, acknowledged.
    pub async fn end(mut self) -> Acknowledged {
        self.counts.is_over.store(true, Ordering::SeqCst);
        let mut acknowledged = Acknowledged::new();
        while let Some(caller) = self.callers.join_next().await {
            acknowledged.extend(caller.unwrap());
        }
        acknowledged
    }
}

/// How long a node that was silent is left alone, as a balancer would.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// One caller.
struct One {
    number: usize,
    nodes: Vec<(Caller, Instant)>,
    next: usize,
    counts: Arc<Counts>,
    acknowledged: Acknowledged,
}

impl One {
    async fn run(mut self) -> Acknowledged {
        for number in 0.. {
            if self.counts.is_over.load(Ordering::SeqCst) {
                break;
            }
            let key = format!("caller-{}-{number}", self.number);
            let what = json!({ "delay_ms": (number * 37 + self.number * 13) % 200 });
            let first = self.insist(&key, &what, number % 4 == 0).await;
            assert!(matches!(first.status, 200 | 201), "{key}: {first:?}");
            let id = first.id();
            // A double click at another node, and another wish under the same key.
            if number % 3 == 0 {
                let again = self.insist(&key, &what, false).await;
                assert_eq!((again.status, again.id()), (200, id.clone()), "{key}: {again:?}");
            }
            if number % 5 == 0 {
                let other = self.insist(&key, &json!({ "other": true }), false).await;
                assert_eq!((other.status, other.json["job"].as_str()), (409, Some(&*id)), "{key}: {other:?}");
            }
            self.acknowledged.insert(key, id);
            self.counts.acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        self.acknowledged
    }

    /// Asks one node after the other until one answers with something else than 503.
    async fn insist(&mut self, key: &str, what: &Value, waits: bool) -> Answer {
        loop {
            self.next = (self.next + 1) % self.nodes.len();
            let (node, left_alone) = &mut self.nodes[self.next];
            if Instant::now() < *left_alone {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let answer = if waits { node.post_and_wait(key, what).await } else { node.post_job(key, what).await };
            match answer {
                Ok(answer) if answer.status == 503 => {
                    let known = ["store-unavailable", "outcome-unknown"].contains(&answer.problem());
                    let may_come_again = answer.json["retry_with_same_key"] == true && answer.comes_back_after;
                    assert!(known && may_come_again, "{answer:?}");
                    self.counts.refused.fetch_add(1, Ordering::SeqCst);
                }
                Ok(answer) => return answer,
                Err(_silence) => *left_alone = Instant::now() + LEFT_ALONE,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
