//! Nodes: leases, declaring dead, and what the dead left open.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onejob_core::{Attempt, AttemptId, Cause, Event, JobId, Millis, NodeId, Verdict, What};

use super::columns::{at, id, id_at, text_at};
use super::fault::Fault;
use super::link::value;
use super::{PostgresStore, sql};
use crate::store::{Applied, KnownNode, Node, Record, Renewed, Result, StoreError};

/// How long a node that ended is shown to people.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// Whose lease a transaction that starts these attempts must find; nobody's in a store that was not entered.
///
/// # Errors
///
/// [`Fault::NoLease`] if one of them is of another node: it was decided before this process was declared
/// dead and entered anew, and that lease has ended.
pub(super) fn lease_of<'a>(
    entered: Option<NodeId>,
    mut starts: impl Iterator<Item = &'a Attempt>,
) -> std::result::Result<Option<NodeId>, Fault> {
    let Some(node) = entered else { return Ok(None) };
    match starts.next() {
        None => Ok(None),
        Some(first) if first.node == node && starts.all(|attempt| attempt.node == node) => Ok(Some(node)),
        Some(_) => Err(Fault::NoLease),
    }
}

impl PostgresStore {
    /// See [`crate::store::Store::now`].
    pub fn now(&self) -> Millis {
        self.shared.clock.now()
    }

    /// See [`crate::store::Store::enter`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn enter(&self, node: Node, lease: Duration) -> Result<()> {
        let shared = &self.shared;
        shared.lease.ask(&sql::FORGET_NODES, vec![value(millis(REMEMBERED))]).await?;
        let bound = vec![value(id(node.id.0)), value(&*node.name), value(millis(lease))];
        shared.lease.ask(&sql::ENTER, bound).await?;
        shared.set_node(node.id);
        Ok(())
    }

    /// See [`crate::store::Store::renew`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn renew(&self, node: NodeId, lease: Duration) -> Result<Renewed> {
        let shared = &self.shared;
        let asked = Instant::now();
        let rows = shared.lease.ask(&sql::RENEW, vec![value(id(node.0)), value(millis(lease))]).await?;
        match rows.first() {
            Some(row) => {
                shared.clock.heard(asked, at(row, 0)?);
                Ok(Renewed::Held)
            }
            None => Ok(Renewed::Lost),
        }
    }

    /// See [`crate::store::Store::leave`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn leave(&self, node: NodeId) -> Result<()> {
        self.shared.lease.ask(&sql::LEAVE, vec![value(id(node.0))]).await?;
        Ok(())
    }

    /// See [`crate::store::Store::nodes`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn nodes(&self) -> Result<Vec<KnownNode>> {
        let rows = self.shared.reads.ask(&sql::NODES, Vec::new()).await?;
        let read = |row: &tokio_postgres::Row| {
            Ok::<_, Fault>(KnownNode {
                node: Node { id: NodeId(id_at(row, 0)?), name: text_at(row, 1)? },
                entered_at: at(row, 2)?,
                lease_until: at(row, 3)?,
                ended_at: at(row, 4)?,
            })
        };
        Ok(rows.iter().map(read).collect::<std::result::Result<_, _>>()?)
    }

    /// See [`crate::store::Store::reap`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn reap(&self, alive: NodeId, at: Millis, limit: usize) -> Result<Vec<Arc<Record>>> {
        let shared = &self.shared;
        for row in shared.work.ask(&sql::FENCE, vec![value(id(alive.0))]).await? {
            let (node, name) = (NodeId(id_at(&row, 0)?), text_at(&row, 1)?);
            tracing::warn!(node = format!("{:032x}", node.0), %name, "a node did not renew its lease: it is dead");
        }
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = shared.work.ask(&sql::REAP, vec![value(id(alive.0)), value(most)]).await?;
        let mut silenced = Vec::with_capacity(rows.len());
        for row in &rows {
            let (attempt, job) = (AttemptId(id_at(row, 0)?), JobId(id_at(row, 1)?));
            let what = What::Silent { attempt, cause: Cause::NodeDied };
            // Together they are one batch; each is decided on its job as it is when its row is held.
            silenced.push(self.send(move |reply| super::Command::Apply {
                job,
                event: Box::new(Event { at, what }),
                reply,
            }));
        }
        let mut reaped = Vec::new();
        for applied in futures_util::future::join_all(silenced).await {
            match applied {
                Ok(Applied::Done { record, verdict: Verdict::Unknown }) => reaped.push(record),
                Ok(Applied::Done { .. } | Applied::Refused { .. } | Applied::NoSuchJob | Applied::Expired(_)) => {}
                Err(StoreError::Refused(why)) => tracing::error!(error = %why, "a damaged job is passed over"),
                Err(away @ (StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_))) => return Err(away),
            }
        }
        Ok(reaped)
    }
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
