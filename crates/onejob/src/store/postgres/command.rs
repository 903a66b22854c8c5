//! What can be wanted of a job that is there, and what becomes of it.

use std::sync::Arc;

use onejob_core::{Event, Illegal, JobId, Millis, Start, Text, Verdict, What};
use tokio::sync::oneshot;

use super::lane::Weigh;
use crate::store::{Applied, Record, Result, StoreError, Submit, Submitted, Tombstone};

/// Something to do with a job that is there, and who wants to know.
pub(super) enum Command {
    /// An event.
    Apply { job: JobId, event: Box<Event>, reply: oneshot::Sender<Result<Applied>> },
    /// Duplicates that were joined in flight.
    Count { job: JobId, times: u64, at: Millis, reply: oneshot::Sender<Result<Option<Arc<Record>>>> },
    /// A post whose key is taken.
    Meet { submit: Box<Submit>, reply: oneshot::Sender<Result<Submitted>> },
    /// A cancel by a key that is taken.
    CancelKey { owner: Text, idempotency_key: Text, new_id: JobId, at: Millis, reply: oneshot::Sender<Result<Applied>> },
}

pub(super) type Key = (Text, Text);

/// What became of a command.
pub(super) enum Outcome {
    Done {
        record: Arc<Record>,
        verdict: Verdict,
    },
    Refused {
        record: Arc<Record>,
        why: Illegal,
    },
    NoSuchJob,
    Expired(Tombstone),
    Counted(Arc<Record>),
    OtherIntent(Arc<Record>),
    /// The job of the key was made by this very request, in a commit whose end was not known.
    Ours(Arc<Record>),
    Failed(StoreError),
}

impl Weigh for Command {
    fn bytes(&self) -> usize {
        match self {
            Command::Apply { event, .. } => match &event.what {
                What::Succeeded { result, .. } => result.text.len(),
                What::Start(_)
                | What::Running { .. }
                | What::Handle { .. }
                | What::Silent { .. }
                | What::Failed { .. }
                | What::Abandoned { .. }
                | What::CancelConfirmed { .. }
                | What::Cancel
                | What::Reopen { .. }
                | What::DeadlinePassed
                | What::Unproved { .. } => 0,
            },
            Command::Count { .. } | Command::CancelKey { .. } => 0,
            Command::Meet { submit, .. } => submit.intent.input.len() + submit.metadata.len(),
        }
    }
}

impl Command {
    /// The attempt that it wants to start.
    pub(super) fn start(&self) -> Option<&Start> {
        match self {
            Command::Apply { event, .. } => match &event.what {
                What::Start(start) => Some(start),
                What::Running { .. }
                | What::Handle { .. }
                | What::Silent { .. }
                | What::Succeeded { .. }
                | What::Failed { .. }
                | What::Abandoned { .. }
                | What::CancelConfirmed { .. }
                | What::Cancel
                | What::Reopen { .. }
                | What::DeadlinePassed
                | What::Unproved { .. } => None,
            },
            Command::Count { .. } | Command::Meet { .. } | Command::CancelKey { .. } => None,
        }
    }

    pub(super) fn job(&self) -> Option<JobId> {
        match self {
            Command::Apply { job, .. } | Command::Count { job, .. } => Some(*job),
            Command::Meet { .. } | Command::CancelKey { .. } => None,
        }
    }

    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Command::Apply { .. } | Command::Count { .. } => None,
            Command::Meet { submit, .. } => Some((submit.owner.clone(), submit.idempotency_key.clone())),
            Command::CancelKey { owner, idempotency_key, .. } => Some((owner.clone(), idempotency_key.clone())),
        }
    }

    pub(super) fn answer(self, outcome: Outcome) {
        // Whoever asked may be gone; what was committed stands.
        match self {
            Command::Apply { reply, .. } | Command::CancelKey { reply, .. } => {
                drop(reply.send(match outcome {
                    Outcome::Done { record, verdict } => Ok(Applied::Done { record, verdict }),
                    Outcome::Refused { record, why } => Ok(Applied::Refused { record, why }),
                    Outcome::NoSuchJob => Ok(Applied::NoSuchJob),
                    Outcome::Expired(tombstone) => Ok(Applied::Expired(tombstone)),
                    Outcome::Ours(record) => Ok(Applied::Done { record, verdict: Verdict::Cancelled }),
                    Outcome::Counted(_) | Outcome::OtherIntent(_) => Err(mixed_up()),
                    Outcome::Failed(error) => Err(error),
                }));
            }
            Command::Count { reply, .. } => {
                drop(reply.send(match outcome {
                    Outcome::Counted(record) => Ok(Some(record)),
                    Outcome::NoSuchJob | Outcome::Expired(_) => Ok(None),
                    Outcome::Failed(error) => Err(error),
                    Outcome::Done { .. } | Outcome::Refused { .. } | Outcome::OtherIntent(_) | Outcome::Ours(_) => {
                        Err(mixed_up())
                    }
                }));
            }
            Command::Meet { reply, .. } => {
                drop(reply.send(match outcome {
                    Outcome::Counted(record) => Ok(Submitted::Same(record)),
                    Outcome::OtherIntent(record) => Ok(Submitted::OtherIntent(record)),
                    Outcome::Ours(record) => Ok(Submitted::New(record)),
                    Outcome::Expired(tombstone) => Ok(Submitted::Expired(tombstone)),
                    Outcome::Failed(error) => Err(error),
                    Outcome::Done { .. } | Outcome::Refused { .. } | Outcome::NoSuchJob => Err(mixed_up()),
                }));
            }
        }
    }
}

pub(super) fn mixed_up() -> StoreError {
    StoreError::Refused("a command got the answer of another".into())
}
