//! A job in a caller's own transaction. Nothing is started in it: its row waits in line, and whoever finds
//! it there after the commit, this node or another, starts it.

use tracing::warn;

use super::door::Invalid;
use super::submit::{Order, Refusal};
use super::{Engine, detached};
use crate::store::postgres::{Transaction, WithinError};
use crate::store::{Store, Submitted};

/// What became of a submit in a transaction that is not committed yet: a promise that holds if it is.
#[must_use = "say `committed()` after the commit: without it the job waits up to a second, and a duplicate is not counted"]
pub struct Uncommitted {
    engine: Engine,
    submitted: Submitted,
}

/// Why a job is not part of a transaction. What was done for it was taken back to where it began; the rest of
/// the transaction stands, as far as the database lets it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitInError {
    /// The request is wrong; the same again will be, too.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// This node does not take it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The jobs of this node are not in a PostgreSQL database: nothing can be one commit with them.
    #[error("a job can be part of a transaction only where the store is a PostgreSQL database")]
    NotOnPostgres,
    /// What the database says.
    #[error(transparent)]
    Within(#[from] WithinError),
}

impl Engine {
    /// Makes the job of an order, or finds it, inside `transaction`.
    ///
    /// # Errors
    ///
    /// [`SubmitInError`].
    pub async fn submit_in(
        &self,
        transaction: &mut Transaction<'_>,
        order: Order,
    ) -> Result<Uncommitted, SubmitInError> {
        let inner = &self.inner;
        let store = match &inner.store {
            Store::Postgres(store) => store,
            Store::Memory(_) | Store::Sqlite(_) => return Err(SubmitInError::NotOnPostgres),
        };
        if inner.draining() {
            return Err(Refusal::Stopping.into());
        }
        let submit = inner.planned(order).await?;
        let submitted = store.submit_in(transaction, &submit).await?;
        Ok(Uncommitted { engine: self.clone(), submitted })
    }
}

impl Uncommitted {
    /// What holds if the transaction is committed.
    pub fn submitted(&self) -> &Submitted {
        &self.submitted
    }

    /// The transaction was committed: wakes whoever can start the job, here and on other nodes, and counts the
    /// duplicate. A hint and no more: without it the nodes look for themselves, every second.
    pub async fn committed(self) -> Submitted {
        let Uncommitted { engine, submitted } = self;
        let inner = engine.inner;
        match submitted {
            Submitted::New(record) => {
                inner.metrics.job("created");
                inner.expect(&record);
                if record.job.deadline.is_some() {
                    inner.sweep.notify_waiters();
                }
                inner.changes.publish(&record);
                if let Store::Postgres(store) = &inner.store {
                    store.tell(std::slice::from_ref(&record));
                }
                Submitted::New(record)
            }
            Submitted::Same(record) => {
                inner.metrics.duplicates.inc();
                let (counting, job) = (inner.clone(), record.job.id);
                let counted =
                    detached(async move { counting.store.count_duplicates(job, 1, counting.now()).await }).await;
                match counted {
                    Ok(counted) => Submitted::Same(counted.unwrap_or(record)),
                    Err(error) => {
                        inner.metrics.store_errors.inc();
                        warn!(%error, "a duplicate could not be counted");
                        Submitted::Same(record)
                    }
                }
            }
            Submitted::OtherIntent(record) => {
                inner.metrics.conflicts.inc();
                Submitted::OtherIntent(record)
            }
            Submitted::Expired(tombstone) => Submitted::Expired(tombstone),
        }
    }
}
