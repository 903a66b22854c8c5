//! This process as one node among others: its lease, what others did, and what the dead left open.
//!
//! A node proves that it lives by one row in the store. One that could not renew starts and sends
//! nothing, by its own monotonic clock; what it finishes late still goes through R6. On a store that
//! belongs to one process there is nothing to prove.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onejob_core::NodeId;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, warn};

use super::{Inner, Stage};
use crate::id;
use crate::store::{Changed, Glance, Heard, Hearing, Node, Renewed, Store, StoreError};

/// How long a node is alive without renewing: what it was doing is unknown to the others that long.
const LEASE: Duration = Duration::from_secs(8);

/// Between two renewals: three may fail before the lease ends.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// So long before its lease ends a node holds back: clocks run at different speeds, and a packet that
/// is sent takes its time.
const HOLD_BACK: Duration = Duration::from_secs(1);

/// Between two looks for what other nodes did: the latency with hints off, or of one that was lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The node's name in the store and until when it may start anything.
pub(crate) struct Member {
    alone: bool,
    lease: watch::Sender<Lease>,
}

#[derive(Clone, Copy)]
struct Lease {
    node: NodeId,
    until: Instant,
}

impl Member {
    /// A node that has not entered its store yet.
    pub(crate) fn new(store: &Store) -> Member {
        let alone = match store {
            Store::Memory(_) | Store::Sqlite(_) => true,
            Store::Postgres(_) => false,
        };
        Member { alone, lease: watch::Sender::new(Lease { node: id::new_node_id(), until: Instant::now() }) }
    }

    /// A node among others whose lease has run out.
    #[cfg(test)]
    pub(super) fn run_down() -> Member {
        Member { alone: false, lease: watch::Sender::new(Lease { node: id::new_node_id(), until: Instant::now() }) }
    }

    /// Whether no other process uses the store.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The boot id under which attempts are recorded now.
    pub(crate) fn node(&self) -> NodeId {
        self.get().node
    }

    /// Whether the lease holds, so that something may be started.
    pub(crate) fn may_start(&self) -> bool {
        self.alone || Instant::now() < self.get().until
    }

    /// Whether what was recorded under this boot id may be sent: its lease holds. After a new entry the old
    /// one's never holds again: the others have declared unknown what was open under it.
    pub(crate) fn may_send(&self, recorded_by: NodeId) -> bool {
        let Lease { node, until } = self.get();
        self.alone || (node == recorded_by && Instant::now() < until)
    }

    /// Returns when what was recorded under this boot id may not be sent any more.
    pub(crate) async fn run_out(&self, recorded_by: NodeId) {
        let mut lease = self.lease.subscribe();
        while self.may_send(recorded_by) {
            let until = lease.borrow_and_update().until;
            tokio::select! {
                biased;
                // Looked at whenever the caller is: after a pause the timers come late.
                () = poll_fn(|_| if self.may_send(recorded_by) { Poll::Pending } else { Poll::Ready(()) }) => return,
                // The sender is ours: it is there.
                _ = lease.changed() => {}
                () = tokio::time::sleep_until(until), if !self.alone => {}
            }
        }
    }

    /// Enters the store under a new boot id.
    pub(crate) async fn enter(&self, store: &Store) -> Result<(), StoreError> {
        let asked = Instant::now();
        let node = id::new_node_id();
        store.enter(Node { id: node, name: name().into() }, LEASE).await?;
        self.set(Lease { node, until: asked + LEASE - HOLD_BACK });
        Ok(())
    }

    async fn renew(&self, store: &Store) -> Result<Renewed, StoreError> {
        let asked = Instant::now();
        let Lease { node, .. } = self.get();
        let renewed = store.renew(node, LEASE).await?;
        if renewed == Renewed::Held {
            self.set(Lease { node, until: asked + LEASE - HOLD_BACK });
        }
        Ok(renewed)
    }

    fn get(&self) -> Lease {
        *self.lease.borrow()
    }

    fn set(&self, lease: Lease) {
        self.lease.send_replace(lease);
    }
}

/// For people: which machine, which process.
fn name() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok().map(|host| host.trim().to_owned()));
    format!("{}:{}", host.unwrap_or_else(|| "unnamed".into()), std::process::id())
}

/// Keeps the lease until the engine stops; enters anew when it was declared dead.
pub(crate) async fn keep_lease(inner: Arc<Inner>) {
    if inner.member.is_alone() {
        return;
    }
    let mut stage = inner.stage.subscribe();
    let mut held = true;
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage == Stage::Stopping) => break,
            () = tokio::time::sleep(spread(RENEW_EVERY)) => {}
        }
        let renewed = match inner.member.renew(&inner.store).await {
            Ok(Renewed::Held) => Ok(()),
            Ok(Renewed::Lost) => {
                error!(
                    "this node was declared dead: what it had open is unknown to the others; it goes on under a new name"
                );
                inner.member.enter(&inner.store).await
            }
            Err(error) => Err(error),
        };
        match renewed {
            Ok(()) if !held => {
                held = true;
                inner.lanes.wake_all();
            }
            Ok(()) => {}
            Err(error) => {
                inner.metrics.store_errors.inc();
                if held && !inner.member.may_start() {
                    held = false;
                    warn!(%error, "this node cannot renew its lease: it starts nothing until it can");
                }
            }
        }
    }
    // What is still in flight has been turned unknown by now, or will be when the lease ends.
    if let Err(error) = inner.store.leave(inner.member.node()).await {
        warn!(%error, "this node could not say that it leaves");
    }
}

/// Turns what dead nodes left open into unknown attempts, again and again.
pub(crate) async fn reap_the_dead(inner: Arc<Inner>) {
    if inner.member.is_alone() {
        return;
    }
    let mut stage = inner.stage.subscribe();
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            () = tokio::time::sleep(spread(RENEW_EVERY)) => {}
        }
        if let Err(error) = inner.reap().await {
            inner.metrics.store_errors.inc();
            warn!(%error, "could not look for what dead nodes left");
        }
    }
}

/// Follows what other nodes do: by their hints, and without any by looking every second.
pub(crate) async fn follow_others(inner: Arc<Inner>) {
    if inner.member.is_alone() {
        return;
    }
    let mut hearing = inner.store.hear();
    let mut stage = inner.stage.subscribe();
    let mut due = Instant::now() + spread(LOOK_EVERY);
    loop {
        let heard = tokio::select! {
            _ = stage.wait_for(|stage| *stage == Stage::Stopping) => return,
            heard = next_look(&mut hearing, &mut due) => heard,
        };
        let watched = match heard {
            Heard::Hint { providers, jobs } => {
                for lane in providers.iter().filter_map(|provider| inner.lanes.get(provider)) {
                    lane.wake.notify_one();
                }
                let watched = inner.changes.glances();
                match jobs {
                    Changed::These(jobs) => watched.into_iter().filter(|glance| jobs.contains(&glance.job)).collect(),
                    Changed::Many => watched,
                }
            }
            Heard::Gap => {
                inner.lanes.wake_all();
                inner.changes.glances()
            }
        };
        look_at(&inner, watched).await;
    }
}

/// A hint when it comes, and a look at everything when that is due: a hint was lost before this one, perhaps,
/// so however many come, they do not put it off.
pub(super) async fn next_look(hearing: &mut Hearing, due: &mut Instant) -> Heard {
    let heard = tokio::select! {
        biased;
        () = tokio::time::sleep_until(*due) => Heard::Gap,
        heard = hearing.next() => heard,
    };
    if heard == Heard::Gap {
        *due = Instant::now() + spread(LOOK_EVERY);
    }
    heard
}

async fn look_at(inner: &Inner, watched: Vec<Glance>) {
    if watched.is_empty() {
        return;
    }
    match inner.store.jobs_unlike(watched).await {
        Ok(changed) => changed.iter().for_each(|record| inner.changes.publish(record)),
        Err(error) => {
            inner.metrics.store_errors.inc();
            warn!(%error, "could not look at the jobs that callers wait for");
        }
    }
}

/// About that long: nodes that started together must not call together.
fn spread(time: Duration) -> Duration {
    time.mul_f64(0.75 + fastrand::f64() / 2.0)
}
