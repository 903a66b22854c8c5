//! What can happen to a job, and what is recorded beside the change.

use std::sync::Arc;

use crate::failure::{Cause, Failure, FailureClass};
use crate::id::{AttemptId, CertificateId, NodeId};
use crate::job::{AttemptStateName, Millis, ResolvedBy, Seen, Text};
use crate::next::Policy;

/// Something that happened, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, by the clock that decides (the store's).
    pub at: Millis,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A slot to send is free and an attempt is to start.
    Start(Start),
    /// The attempt is with the provider: its call has lasted a second, a worker or a look-up says so.
    Running {
        /// Which.
        attempt: AttemptId,
        /// Whose word.
        evidence: Evidence,
    },
    /// The provider gave its own id for the work.
    Handle {
        /// Which.
        attempt: AttemptId,
        /// The provider's id.
        handle: Text,
    },
    /// Nothing is known any more: timeout, lost connection, dead node or worker.
    Silent {
        /// Which.
        attempt: AttemptId,
        /// Why.
        cause: Cause,
    },
    /// The work was done and its result passed the task's contract.
    Succeeded {
        /// Which.
        attempt: AttemptId,
        /// The result.
        result: Payload,
        /// What the provider reported.
        seen: Seen,
        /// Whose word.
        evidence: Evidence,
    },
    /// The attempt certainly failed or certainly did not happen.
    Failed {
        /// Which.
        attempt: AttemptId,
        /// How.
        failure: Failure,
        /// What the provider reported.
        seen: Seen,
        /// Whose word.
        evidence: Evidence,
        /// What the task allows to follow.
        follow: Follow,
    },
    /// An operator or a declared policy releases an unknown attempt without evidence.
    Abandoned {
        /// Which.
        attempt: AttemptId,
        /// Who: [`Evidence::Operator`] or [`Evidence::Policy`].
        evidence: Evidence,
        /// What the task allows to follow.
        follow: Follow,
    },
    /// The provider confirms that it cancelled the work, or the request certainly never left.
    CancelConfirmed {
        /// Which.
        attempt: AttemptId,
        /// It certainly never left this machine.
        never_sent: bool,
        /// Whose word.
        evidence: Evidence,
    },
    /// The caller closes the job.
    Cancel,
    /// The caller asks a failed job to be tried again, at this provider.
    Reopen {
        /// Where the next attempt goes: the task's first provider.
        provider: Text,
    },
    /// The job's deadline has passed.
    DeadlinePassed,
    /// The certificate on which the job's plan stands does not hold any more: suspended, ended, or of
    /// another contract than the one that is configured now.
    Unproved {
        /// The certificate that the plan named when whoever says so looked at it.
        certificate: Option<CertificateId>,
        /// What the task allows instead.
        follow: Follow,
    },
}

/// An attempt that is to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// Its new name.
    pub attempt: AttemptId,
    /// Where it goes.
    pub provider: Text,
    /// The provider that needs no certificate: the task's first, or the pinned one.
    pub primary: Text,
    /// A valid certificate of `provider` for this task, if it has one. A store takes it away where it finds,
    /// in the transaction that writes the attempt, that it does not hold.
    pub certificate: Option<CertificateId>,
    /// Who wants it.
    pub trigger: Trigger,
    /// The process that will send it.
    pub node: NodeId,
}

/// Who wants an attempt to start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trigger {
    /// The job's own plan has come due.
    Plan,
    /// The newest attempt of a racing task has been silent for `hedge_after`.
    Hedge {
        /// How many attempts the job had when whoever hedges looked: one that came since makes this moot.
        seen: u32,
    },
    /// A person.
    Hand {
        /// Go to a provider without a certificate all the same.
        force: bool,
    },
}

/// Where a word about an attempt comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// The answer to the request itself, or the worker's own word; late if the attempt is unknown.
    Answer,
    /// A look-up.
    Lookup,
    /// A callback.
    Callback,
    /// A replay under the same key.
    Replay,
    /// A person, with a reason.
    Operator {
        /// Why.
        reason: Text,
    },
    /// The task's declared policy.
    Policy {
        /// Which.
        reason: Text,
    },
}

impl Evidence {
    /// How it stands in a resolution.
    pub fn resolved_by(&self) -> ResolvedBy {
        match self {
            Evidence::Answer => ResolvedBy::LateAnswer,
            Evidence::Lookup => ResolvedBy::Lookup,
            Evidence::Callback => ResolvedBy::Callback,
            Evidence::Replay => ResolvedBy::Replay,
            Evidence::Operator { .. } => ResolvedBy::Operator,
            Evidence::Policy { .. } => ResolvedBy::Policy,
        }
    }

    /// The reason that came with it.
    pub fn reason(&self) -> Option<&Text> {
        match self {
            Evidence::Operator { reason } | Evidence::Policy { reason } => Some(reason),
            Evidence::Answer | Evidence::Lookup | Evidence::Callback | Evidence::Replay => None,
        }
    }

    /// A decision of ours, not a fact about the provider: allowed on unknown attempts only.
    pub fn is_decree(&self) -> bool {
        self.reason().is_some()
    }
}

/// What the task allows to follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Follow {
    /// The task's policy as it is configured now.
    pub policy: Arc<Policy>,
    /// A random number from 0 to 1000, drawn outside, that spreads the retries.
    pub jitter: u16,
}

/// SHA-256 of a payload.
pub type Digest = [u8; 32];

/// A result on its way to the slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// The JSON text.
    pub text: Text,
    /// SHA-256 of it, for the record if it is dropped.
    pub digest: Digest,
}

/// What is left of a result that lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// SHA-256 of what was dropped.
    pub digest: Digest,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Payload {
    /// What may be kept of it when it loses.
    pub fn dropped(&self) -> Dropped {
        Dropped { digest: self.digest, bytes: self.text.len() as u64 }
    }
}

/// A noteworthy fact, recorded in the same transaction as the change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An attempt became unknown.
    Unknown {
        /// Which.
        attempt: AttemptId,
        /// Why.
        cause: Cause,
    },
    /// An attempt ended after the slot was closed (R7).
    RaceLost {
        /// The loser.
        attempt: AttemptId,
        /// The winner; absent after a cancel.
        winner: Option<AttemptId>,
        /// The result that was dropped, if the loser had one. It means a duplicate effect:
        /// somebody may owe a refund.
        dropped: Option<Dropped>,
    },
    /// A word about an attempt that had already ended (R8).
    Late {
        /// Which.
        attempt: AttemptId,
        /// How it had ended.
        state: AttemptStateName,
        /// What was said.
        word: LateWord,
    },
    /// An unknown attempt was resolved.
    Resolved {
        /// Which.
        attempt: AttemptId,
        /// By whose word.
        by: ResolvedBy,
        /// To what.
        state: AttemptStateName,
        /// The reason given.
        reason: Option<Text>,
    },
}

/// What was said too late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateWord {
    /// That the work was done: a duplicate effect.
    Succeeded(Dropped),
    /// That it failed.
    Failed(FailureClass),
    /// That it was cancelled.
    Cancelled,
}

impl Notice {
    /// The word for it, as in the `kind` column.
    pub fn kind(&self) -> &'static str {
        match self {
            Notice::Unknown { .. } => "unknown",
            Notice::RaceLost { dropped: Some(_), .. } | Notice::Late { word: LateWord::Succeeded(_), .. } => {
                "duplicate_effect"
            }
            Notice::RaceLost { dropped: None, .. } => "race_lost",
            Notice::Late { word: LateWord::Failed(_) | LateWord::Cancelled, .. } => "late_word",
            Notice::Resolved { .. } => "resolution",
        }
    }
}
