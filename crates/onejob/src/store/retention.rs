//! How long finished jobs stay, and what stays of them for ever: their keys (R12).

use onejob_core::{JobId, JobState, Millis};

use super::{Record, Result, Store};

/// What is left of a pruned job: its key is never free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// The job that had the key.
    pub job: JobId,
    /// How it ended.
    pub state: JobState,
    /// When it had last changed.
    pub ended_at: Millis,
}

/// A step of pruning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prune {
    /// Looks at jobs after this one; `JobId(0)` begins.
    pub after: JobId,
    /// Takes jobs that last changed before this moment.
    pub ended_before: Millis,
    /// Looks at so many jobs at most, which bounds the transaction.
    pub limit: usize,
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    /// Jobs that were taken away.
    pub jobs: usize,
    /// Where the next step begins; absent when everything old enough has been looked at.
    pub next: Option<JobId>,
}

impl Prune {
    /// The least id that no job old enough can have: ids begin with the moment they were drawn, and
    /// no job ends before it was made.
    pub(super) fn end(&self) -> u128 {
        u128::from(self.ended_before.max(0).unsigned_abs()) << 80
    }

    /// Whether a job may go: retention counts from the end, and what is open, or has an attempt that
    /// may still be alive, does not end by age.
    pub(super) fn takes(&self, record: &Record) -> bool {
        record.job.state().is_terminal()
            && record.updated_at < self.ended_before
            && !record.job.attempts.iter().any(|attempt| attempt.state.is_open())
    }
}

impl Store {
    /// Takes finished jobs away, with their attempts and notices, and leaves a tombstone for each
    /// key. A job that is open, or has an open attempt, stays however old it is.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`]; the step may be repeated.
    pub async fn prune(&self, prune: Prune) -> Result<Pruned> {
        on_each!(self, store => store.prune(prune).await)
    }
}
