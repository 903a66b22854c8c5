//! What a store knows of the processes that share it: their leases, and the hints that they give
//! each other. The stores of one process answer for that one alone.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onejob_core::{JobId, JobState, Millis, NodeId, Text};
use tokio::sync::broadcast;

use super::{Record, Result, Store};

/// One running process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its boot id: a new one at each start, and a new one after [`Renewed::Lost`].
    pub id: NodeId,
    /// For people: a host name and a process id.
    pub name: Text,
}

/// What became of a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewed {
    /// The node is alive for another lease from now.
    Held,
    /// The node was declared dead, or never entered: its open attempts are unknown or soon will be,
    /// and nothing is ever started under its id again. Whoever goes on enters under a new one.
    Lost,
}

/// A node as the store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownNode {
    /// Which.
    pub node: Node,
    /// When it entered.
    pub entered_at: Millis,
    /// Until when it is alive if it does not renew.
    pub lease_until: Millis,
    /// When it was declared dead, or left.
    pub ended_at: Option<Millis>,
}

/// Something that another node did, as a hint: it may be missing, late, or come twice. Who only
/// looks every few seconds misses nothing either.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Jobs changed, or were queued.
    Hint {
        /// Providers for which jobs were queued.
        providers: Vec<Text>,
        /// Jobs that changed.
        jobs: Changed,
    },
    /// Hints were lost, or may have been: whoever waits for something looks for itself now.
    Gap,
}

/// Which jobs changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    /// These.
    These(Vec<JobId>),
    /// Too many to name them.
    Many,
}

/// Where hints of other nodes arrive; see [`Store::hear`].
pub struct Hearing(Option<broadcast::Receiver<Heard>>);

impl Hearing {
    /// Of a store that no other process uses.
    pub(super) fn silence() -> Hearing {
        Hearing(None)
    }

    /// Of a store whose listener sends here.
    pub(crate) fn of(heard: broadcast::Receiver<Heard>) -> Hearing {
        Hearing(Some(heard))
    }

    /// The next hint, whenever it comes; for ever silent where there are no other nodes, where
    /// hints are switched off, and after the store is closed.
    pub async fn next(&mut self) -> Heard {
        match &mut self.0 {
            None => std::future::pending().await,
            Some(heard) => match heard.recv().await {
                Ok(heard) => heard,
                Err(broadcast::error::RecvError::Lagged(_)) => Heard::Gap,
                Err(broadcast::error::RecvError::Closed) => {
                    self.0 = None;
                    std::future::pending().await
                }
            },
        }
    }
}

/// A job as somebody saw it last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Glance {
    /// Which.
    pub job: JobId,
    /// Its state then.
    pub state: JobState,
    /// When it had last changed.
    pub updated_at: Millis,
}

impl Glance {
    /// What there is to see of a record.
    pub fn at(record: &Record) -> Glance {
        Glance { job: record.job.id, state: record.job.state(), updated_at: record.updated_at }
    }
}

// A store of one process has no other nodes, and is alive as long as it can call.
impl Store {
    /// The clock that decides: when things are due, when leases end. On PostgreSQL the database's,
    /// followed from here; otherwise this machine's. Every `at` that is handed to a verb comes from it.
    pub fn now(&self) -> Millis {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => wall_clock(),
            Store::Postgres(store) => store.now(),
        }
    }

    /// Makes this process a node that is alive for `lease` from now. Before its first start.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn enter(&self, node: Node, lease: Duration) -> Result<()> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(store) => store.enter(node, lease).await,
        }
    }

    /// Keeps a node alive for `lease` from now. A node that comes too late but has not been declared
    /// dead yet is alive again: nothing has happened to its attempts.
    ///
    /// Whoever calls counts its own validity from before the call, by a monotonic clock, and starts
    /// and sends nothing outside of it.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn renew(&self, node: NodeId, lease: Duration) -> Result<Renewed> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Renewed::Held),
            Store::Postgres(store) => store.renew(node, lease).await,
        }
    }

    /// Ends a node's lease now: nothing of it runs any more, and what it left open may be reaped.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn leave(&self, node: NodeId) -> Result<()> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(store) => store.leave(node).await,
        }
    }

    /// The nodes that are alive, and those that ended lately; the youngest first. Empty where a
    /// store belongs to one process.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn nodes(&self) -> Result<Vec<KnownNode>> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(store) => store.nodes().await,
        }
    }

    /// Hints of what other nodes did, from now on. The store itself tells the others what this node
    /// does, after the commit and a few times a second at most.
    pub fn hear(&self) -> Hearing {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Hearing::silence(),
            Store::Postgres(store) => store.hear(),
        }
    }

    /// Of these jobs those that are not any more as they were seen; one short read for all that this
    /// node waits for. A pruned job is not among them.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn jobs_unlike(&self, seen: Vec<Glance>) -> Result<Vec<Arc<Record>>> {
        on_each!(self, store => store.jobs_unlike(seen).await)
    }
}

/// This machine's clock.
pub(super) fn wall_clock() -> Millis {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_millis() as Millis,
        Err(before) => -(before.duration().as_millis() as Millis),
    }
}
