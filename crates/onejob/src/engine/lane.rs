//! One lane per provider: its slots to send, and whether jobs wait for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use onejob_core::{Millis, Text};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::circuit::Circuit;
use crate::provider::Provider;

/// How many calls past their deadline may be awaited at a provider, for each of its slots, before
/// unknown attempts keep their slots. It bounds sockets and memory at a provider that hangs.
const LINGERING_PER_SLOT: usize = 16;

/// A provider and the room to call it.
pub(crate) struct Lane {
    pub(crate) name: Text,
    pub(crate) provider: Provider,
    /// Whether it has lately refused everything.
    pub(crate) circuit: Circuit,
    slots: Arc<Semaphore>,
    lingering: Arc<Semaphore>,
    /// Jobs may wait for a slot, nobody knows how many. Only the dispatcher says so.
    backlog: AtomicBool,
    /// Due jobs that this node has queued here and not yet claimed: each finds a slot as long as so many are
    /// free.
    told: AtomicUsize,
    next_due: AtomicI64,
    pub(crate) wake: Notify,
}

/// All lanes, and the room they share.
pub(crate) struct Lanes {
    lanes: Vec<Arc<Lane>>,
    overall: Arc<Semaphore>,
    in_flight: AtomicUsize,
    idle: Notify,
}

/// The right to have one attempt in flight. Given back when dropped.
pub(crate) struct Slot {
    lanes: Arc<Lanes>,
    permits: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
    lingering: Option<OwnedSemaphorePermit>,
}

impl Lane {
    pub(crate) fn new(name: Text, provider: Provider, concurrency: usize) -> Lane {
        Lane {
            name,
            provider,
            circuit: Circuit::default(),
            slots: Arc::new(Semaphore::new(concurrency)),
            lingering: Arc::new(Semaphore::new(concurrency.saturating_mul(LINGERING_PER_SLOT))),
            backlog: AtomicBool::new(false),
            told: AtomicUsize::new(0),
            next_due: AtomicI64::new(Millis::MAX),
            wake: Notify::new(),
        }
    }

    /// Whether jobs wait here.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::SeqCst) || self.told.load(Ordering::SeqCst) > 0
    }

    /// Says that a job waits here until `due_at`, and wakes the dispatcher if it would come too late.
    /// One that is not due yet is no backlog: others may go before it.
    pub(crate) fn expect(&self, due_at: Millis, now: Millis) {
        if due_at <= now {
            self.told.fetch_add(1, Ordering::SeqCst);
        } else if self.next_due.fetch_min(due_at, Ordering::SeqCst) <= due_at {
            return;
        }
        self.wake.notify_one();
    }

    /// When the dispatcher comes back by itself; what is expected before that wakes it. It says `None`
    /// before it looks: a moment for which it has woken already must hold up no later one.
    pub(crate) fn will_return(&self, next_due: Option<Millis>) {
        self.next_due.store(next_due.unwrap_or(Millis::MAX), Ordering::SeqCst);
    }

    /// How many jobs are known to wait here, and whether others may.
    pub(crate) fn waiting(&self) -> (usize, bool) {
        (self.told.load(Ordering::SeqCst), self.backlog.load(Ordering::SeqCst))
    }

    /// A claim used all its slots: `got` jobs wait no more, and others may.
    pub(crate) fn claimed_some(&self, told: usize, got: usize) {
        self.told.fetch_sub(told.min(got), Ordering::SeqCst);
        self.keep_backlog();
    }

    /// A claim found no more jobs than slots: of the `told` that were known before it began none waits.
    pub(crate) fn claimed_all(&self, told: usize) {
        self.told.fetch_sub(told, Ordering::SeqCst);
        self.backlog.store(false, Ordering::SeqCst);
    }

    /// Jobs may wait here until a slot is given back.
    pub(crate) fn keep_backlog(&self) {
        self.backlog.store(true, Ordering::SeqCst);
    }
}

impl Lanes {
    pub(crate) fn new(lanes: Vec<Lane>, max_in_flight: usize) -> Lanes {
        Lanes {
            lanes: lanes.into_iter().map(Arc::new).collect(),
            overall: Arc::new(Semaphore::new(max_in_flight)),
            in_flight: AtomicUsize::new(0),
            idle: Notify::new(),
        }
    }

    pub(crate) fn get(&self, provider: &str) -> Option<&Arc<Lane>> {
        self.lanes.iter().find(|l| &*l.name == provider)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.lanes.iter()
    }

    /// A slot at `lane`, if one is free now.
    pub(crate) fn try_slot(self: &Arc<Lanes>, lane: &Lane) -> Option<Slot> {
        let here = lane.slots.clone().try_acquire_owned().ok()?;
        let overall = self.overall.clone().try_acquire_owned().ok()?;
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Some(Slot { lanes: self.clone(), permits: Some((here, overall)), lingering: None })
    }

    /// Whether each job that waits at `lane` would find a slot beside `more`.
    pub(crate) fn has_room(&self, lane: &Lane, more: usize) -> bool {
        let free = lane.slots.available_permits().min(self.overall.available_permits());
        !lane.backlog.load(Ordering::SeqCst) && free >= lane.told.load(Ordering::SeqCst).saturating_add(more)
    }

    /// Returns when no slot is held and no call lingers.
    pub(crate) async fn idle(&self) {
        loop {
            let woken = self.idle.notified();
            if self.in_flight.load(Ordering::SeqCst) == 0 {
                return;
            }
            woken.await;
        }
    }

    /// Calls in flight, the lingering ones among them.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Something may wait at any provider.
    pub(crate) fn wake_all(&self) {
        for lane in &self.lanes {
            lane.wake.notify_one();
        }
    }

    fn wake_those_that_wait(&self) {
        for lane in self.lanes.iter().filter(|l| l.has_backlog()) {
            lane.wake.notify_one();
        }
    }
}

impl Slot {
    /// The attempt is unknown and its late answer is awaited: lets other work go on, unless too many
    /// calls linger at this provider already.
    pub(crate) fn linger(&mut self, lane: &Lane) {
        if let Ok(permit) = lane.lingering.clone().try_acquire_owned() {
            self.lingering = Some(permit);
            self.permits = None;
            self.lanes.wake_those_that_wait();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.permits = None;
        self.lingering = None;
        self.lanes.wake_those_that_wait();
        if self.lanes.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.lanes.idle.notify_waiters();
        }
    }
}
