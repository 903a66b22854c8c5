//! What `decide` answers: the change, or why there is none.

use crate::event::Notice;
use crate::id::AttemptId;
use crate::job::{AttemptStateName, Job, JobState, Text};
use crate::next::Next;

/// What an event makes of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The job afterwards.
    pub job: Job,
    /// The one attempt that is new or different, if any.
    pub touched: Option<Touched>,
    /// What is to be recorded beside it, in the same transaction.
    pub notices: Vec<Notice>,
    /// What to tell whoever brought the event.
    pub verdict: Verdict,
}

/// Which attempt row a change writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Touched {
    /// A new row.
    Inserted(AttemptId),
    /// An existing row, which was open.
    Updated(AttemptId),
}

/// What became of an event. All of these are normal life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The attempt is recorded and may be sent now.
    Started,
    /// The attempt is running, or its handle is recorded.
    Recorded,
    /// It was so already; nothing changed.
    AlreadySo,
    /// The attempt is unknown now.
    Unknown,
    /// The attempt fills the slot.
    Won,
    /// The attempt had filled the slot before: its owner repeats itself.
    AlreadyWon,
    /// The attempt had a result and the slot was closed: it is dropped.
    Superseded {
        /// The winner; absent after a cancel.
        by: Option<AttemptId>,
    },
    /// The attempt ended without a result, and this follows.
    Ended(Next),
    /// The job was queued for a provider that has no certificate any more, and this is planned instead.
    Replanned(Next),
    /// The attempt ended without a result, and the slot was closed already.
    EndedAfterClose,
    /// The attempt had ended before; the word is only noted (R8).
    TooLate(AttemptStateName),
    /// The job is cancelled now.
    Cancelled,
    /// The job is queued again.
    Reopened,
    /// The job failed, for its deadline passed.
    Expired,
}

/// Why an event may not happen. The job stays as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Illegal {
    /// The job has no such attempt.
    NoSuchAttempt,
    /// The job is closed.
    JobClosed(JobState),
    /// Another attempt may still be alive (R4), or this one is and a decree cannot end it.
    AttemptInFlight {
        /// Which.
        attempt: AttemptId,
        /// In which state.
        state: AttemptStateName,
    },
    /// The attempt has ended and a decree cannot change it (R8).
    AttemptClosed(AttemptStateName),
    /// The provider has no certificate for the task (R9).
    NotVerified {
        /// Which.
        provider: Text,
    },
    /// The plan of the job is another one, or has not come due.
    NotDue,
    /// No attempt may start any more: the job's deadline has passed.
    DeadlinePassed,
    /// An attempt of an open job cannot be cancelled: cancel the job.
    JobOpen,
    /// Only an operator or a policy can abandon.
    NotADecree,
}
