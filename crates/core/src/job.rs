//! The job and its attempts: every state, each variant with exactly the data of that state.

mod words;

use std::sync::Arc;

use crate::failure::{Cause, Failure, FailureClass};
use crate::id::{AttemptId, CertificateId, JobId, NodeId};

/// Milliseconds since the Unix epoch. Handed in from outside; nothing here reads a clock.
pub type Millis = i64;

/// Text that the rules carry and never look inside: provider names, JSON, messages.
pub type Text = Arc<str>;

/// The durable record of one intent, as far as the rules need it. The intent itself (owner, key,
/// task, input) is no part of it: no rule depends on it and nothing may change it (R3).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// Whether two attempts may run side by side; recorded when the job was made.
    pub effects: Effects,
    /// Raised by writing the slot, failing, cancelling and reopening, and by nothing else.
    pub version: u32,
    /// The result slot, and what closed it.
    pub slot: Slot,
    /// No attempt starts after this moment.
    pub deadline: Option<Millis>,
    /// Attempts up to this number do not count against the policy: the job was reopened after them.
    pub tries_from: u32,
    /// All attempts, in the order of their numbers: `attempts[i].number == i + 1`.
    pub attempts: Vec<Attempt>,
}

/// Whether running the task twice at once does harm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effects {
    /// The default: at most one attempt that may still be alive.
    Exclusive,
    /// Harmless to run twice: a second attempt may run beside a running one.
    Racing,
}

/// The result slot. It is written once (R6); only a failed job is ever opened again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// Nothing has closed the job. `plan` is there exactly while the job is queued.
    Open {
        /// The next attempt, where and when; absent while an attempt is open.
        plan: Option<Plan>,
    },
    /// An attempt won.
    Filled {
        /// The winner.
        by: AttemptId,
        /// Its result, a JSON text.
        result: Text,
    },
    /// All that the policy allows was tried and certainly failed.
    GivenUp(GivenUp),
    /// Closed by the caller. What comes later is dropped.
    Cancelled,
}

/// The next attempt of a queued job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    /// Where it will go.
    pub provider: Text,
    /// The provider that needs no certificate: the task's first, or the pinned one.
    pub primary: Text,
    /// What allows it to go there, if that is not the first provider (R9).
    pub certificate: Option<CertificateId>,
    /// Not before this moment.
    pub due_at: Millis,
}

/// Why a job failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GivenUp {
    /// What kind of end it was.
    pub class: GiveUpClass,
    /// The provider's HTTP status, where there was one.
    pub status: Option<u16>,
    /// A sentence for people.
    pub message: Text,
    /// Whether another provider might have taken over.
    pub failover: Failover,
}

/// What ended a failed job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GiveUpClass {
    /// Its last attempt failed with certainty, in this class.
    Failure(FailureClass),
    /// Its last attempt was abandoned, and the policy allows no other.
    Abandoned,
    /// Its deadline passed before an attempt could start.
    Deadline,
}

/// Whether the job could have gone to another provider when it failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failover {
    /// There was no other provider to ask, or the failure allowed none.
    NotApplicable,
    /// There were others, and none had proved itself (R9).
    NoVerifiedProvider,
}

/// One try to fulfil a job at one provider. It is never reused for another try.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attempt {
    /// Its name.
    pub id: AttemptId,
    /// 1 for the first attempt of the job.
    pub number: u32,
    /// Where it went.
    pub provider: Text,
    /// The provider that needed no certificate when this attempt started.
    pub primary: Text,
    /// Started by a person, not by the policy.
    pub by_hand: bool,
    /// On what it stands, if it went elsewhere.
    pub certificate: Option<CertificateId>,
    /// The process that started it.
    pub node: NodeId,
    /// The job's version that it read at its start: the fence of R6.
    pub version_read: u32,
    /// When it was recorded, before the first byte left.
    pub started_at: Millis,
    /// The provider's own id for the work, once it is known.
    pub handle: Option<Text>,
    /// What the provider reported about itself.
    pub seen: Seen,
    /// Where it stands.
    pub state: AttemptState,
}

/// The states of an attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AttemptState {
    /// Recorded; the request may or may not have left this machine. Written only when a slot to
    /// send is free, immediately before sending. Leaves by every arrow of the diagram.
    Starting,
    /// With the provider: the call has lasted a second on a living connection, a handle was given,
    /// a worker said so, or a look-up of an unknown attempt says that it still runs.
    Running,
    /// Nobody knows. Stays until evidence arrives: a late answer, a look-up, a callback, a replay,
    /// an operator's word or a declared policy.
    Unknown {
        /// Why nobody knows.
        cause: Cause,
        /// Since when.
        since: Millis,
    },
    /// Its result fills the slot. Terminal.
    Succeeded {
        /// When.
        at: Millis,
        /// What ended the unknown, if it was unknown before.
        resolution: Option<Resolution>,
    },
    /// Certainly not done, or certainly failed. Terminal.
    Failed {
        /// When.
        at: Millis,
        /// How.
        failure: Failure,
        /// What ended the unknown, if it was unknown before.
        resolution: Option<Resolution>,
    },
    /// Finished, but the slot was taken; its result was dropped (R7). Terminal.
    Superseded {
        /// When.
        at: Millis,
        /// The winner; absent when the slot was closed by a cancel.
        by: Option<AttemptId>,
        /// What ended the unknown, if it was unknown before.
        resolution: Option<Resolution>,
    },
    /// The provider confirmed the cancel, or it was never sent. Terminal.
    Cancelled {
        /// When.
        at: Millis,
        /// It certainly never left this machine.
        never_sent: bool,
        /// What ended the unknown, if it was unknown before.
        resolution: Option<Resolution>,
    },
    /// Released by an operator or a declared policy, without evidence. Its late answer is only
    /// noted. Terminal.
    Abandoned {
        /// When.
        at: Millis,
        /// Who released it and why.
        resolution: Resolution,
    },
}

/// What ended an unknown attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Resolution {
    /// Whose word it was.
    pub by: ResolvedBy,
    /// When.
    pub at: Millis,
    /// The reason given, by an operator or a policy.
    pub reason: Option<Text>,
}

/// Whose word ended an unknown attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResolvedBy {
    /// The provider's own answer, after the deadline; also a worker's own late word.
    LateAnswer,
    /// The provider, asked by handle or by our id.
    Lookup,
    /// The provider, calling us.
    Callback,
    /// The provider, sent the same bytes under the same key.
    Replay,
    /// A person.
    Operator,
    /// The task's declared `on_unknown`.
    Policy,
}

/// What a provider reported about its work.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Seen {
    /// The model that answered.
    pub model: Option<Text>,
    /// What it counted.
    pub usage: Option<Usage>,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Usage {
    /// Prompt tokens.
    pub input_tokens: Option<u64>,
    /// Completion tokens.
    pub output_tokens: Option<u64>,
}

/// The state of a job: a function of the slot and the attempts, never a fact of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JobState {
    /// No attempt is open; the plan says when the next one starts.
    Queued,
    /// An attempt is starting or running.
    Running,
    /// An attempt is unknown and none is starting or running. Nothing starts until evidence comes.
    Unknown,
    /// The slot holds a result. Terminal.
    Succeeded,
    /// The policy is at its end. Terminal, but for an explicit retry.
    Failed,
    /// Closed by the caller. Terminal.
    Cancelled,
}

/// The state of an attempt without its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttemptStateName {
    /// See [`AttemptState::Starting`].
    Starting,
    /// See [`AttemptState::Running`].
    Running,
    /// See [`AttemptState::Unknown`].
    Unknown,
    /// See [`AttemptState::Succeeded`].
    Succeeded,
    /// See [`AttemptState::Failed`].
    Failed,
    /// See [`AttemptState::Superseded`].
    Superseded,
    /// See [`AttemptState::Cancelled`].
    Cancelled,
    /// See [`AttemptState::Abandoned`].
    Abandoned,
}

impl Job {
    /// A new job, queued as `plan` says.
    pub fn new(id: JobId, effects: Effects, deadline: Option<Millis>, plan: Plan) -> Job {
        Job {
            id,
            effects,
            version: 0,
            slot: Slot::Open { plan: Some(plan) },
            deadline,
            tries_from: 0,
            attempts: Vec::new(),
        }
    }

    /// The job's state, computed.
    pub fn state(&self) -> JobState {
        match &self.slot {
            Slot::Filled { .. } => JobState::Succeeded,
            Slot::GivenUp(_) => JobState::Failed,
            Slot::Cancelled => JobState::Cancelled,
            Slot::Open { .. } if self.attempts.iter().any(|a| a.state.is_live()) => JobState::Running,
            Slot::Open { .. } if self.attempts.iter().any(|a| a.state.is_open()) => JobState::Unknown,
            Slot::Open { .. } => JobState::Queued,
        }
    }

    /// The attempt of that name.
    pub fn attempt(&self, id: AttemptId) -> Option<&Attempt> {
        self.attempts.iter().find(|a| a.id == id)
    }

    /// The attempts since the job was made or last reopened: those that count against the policy.
    pub fn counted_attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|a| a.number > self.tries_from)
    }

    /// The winner, if the slot is filled.
    pub fn completed_by(&self) -> Option<AttemptId> {
        match &self.slot {
            Slot::Filled { by, .. } => Some(*by),
            Slot::Open { .. } | Slot::GivenUp(_) | Slot::Cancelled => None,
        }
    }

    /// Whether a caller who gives up on this job and asks again under a new key can be sure that
    /// the work is not done twice: the job is closed without a result and every attempt certainly
    /// did nothing.
    pub fn is_safe_to_ask_again(&self) -> bool {
        let closed_empty = match &self.slot {
            Slot::GivenUp(_) | Slot::Cancelled => true,
            Slot::Open { .. } | Slot::Filled { .. } => false,
        };
        closed_empty && self.attempts.iter().all(|a| a.state.certainly_did_nothing())
    }

    /// What of this value no sequence of events can mean, in a sentence; `None` if it is sound.
    /// Stores call it on what they read, so that a damaged row is refused and not acted upon.
    pub fn unsound(&self) -> Option<&'static str> {
        let queued = self.state() == JobState::Queued;
        match &self.slot {
            Slot::Open { plan } if plan.is_some() != queued => {
                return Some("a plan is there exactly while a job is queued");
            }
            Slot::Open { .. } | Slot::Cancelled => {}
            Slot::Filled { by, .. } => {
                if self.attempt(*by).map(|a| a.state.name()) != Some(AttemptStateName::Succeeded) {
                    return Some("the slot names an attempt that did not succeed");
                }
            }
            Slot::GivenUp(_) => {
                if self.attempts.iter().any(|a| a.state.is_open()) {
                    return Some("a failed job has an open attempt");
                }
            }
        }
        let succeeded = self.attempts.iter().filter(|a| a.state.name() == AttemptStateName::Succeeded).count();
        if succeeded != usize::from(self.completed_by().is_some()) {
            return Some("a succeeded attempt does not fill the slot");
        }
        let open = self.attempts.iter().filter(|a| a.state.is_open()).count();
        if self.effects == Effects::Exclusive && open > 1 {
            return Some("an exclusive job has two open attempts");
        }
        if self.attempts.iter().zip(1..).any(|(a, n)| a.number != n) {
            return Some("the numbers of the attempts have a gap");
        }
        None
    }
}

impl Attempt {
    /// How it failed, if it certainly did.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.state {
            AttemptState::Failed { failure, .. } => Some(failure),
            AttemptState::Starting
            | AttemptState::Running
            | AttemptState::Unknown { .. }
            | AttemptState::Succeeded { .. }
            | AttemptState::Superseded { .. }
            | AttemptState::Cancelled { .. }
            | AttemptState::Abandoned { .. } => None,
        }
    }

    /// How it failed, if that was because our request is wrong: then nothing more is tried.
    pub(crate) fn invalid(&self) -> Option<&Failure> {
        self.failure().filter(|failure| failure.class == FailureClass::Invalid)
    }
}

impl AttemptState {
    /// The state without its data.
    pub fn name(&self) -> AttemptStateName {
        match self {
            AttemptState::Starting => AttemptStateName::Starting,
            AttemptState::Running => AttemptStateName::Running,
            AttemptState::Unknown { .. } => AttemptStateName::Unknown,
            AttemptState::Succeeded { .. } => AttemptStateName::Succeeded,
            AttemptState::Failed { .. } => AttemptStateName::Failed,
            AttemptState::Superseded { .. } => AttemptStateName::Superseded,
            AttemptState::Cancelled { .. } => AttemptStateName::Cancelled,
            AttemptState::Abandoned { .. } => AttemptStateName::Abandoned,
        }
    }

    /// Not terminal: starting, running or unknown.
    pub fn is_open(&self) -> bool {
        !self.name().is_terminal()
    }

    /// Starting or running.
    pub fn is_live(&self) -> bool {
        matches!(self.name(), AttemptStateName::Starting | AttemptStateName::Running)
    }

    /// What ended the unknown, if anything did.
    pub fn resolution(&self) -> Option<&Resolution> {
        match self {
            AttemptState::Starting | AttemptState::Running | AttemptState::Unknown { .. } => None,
            AttemptState::Succeeded { resolution, .. }
            | AttemptState::Failed { resolution, .. }
            | AttemptState::Superseded { resolution, .. }
            | AttemptState::Cancelled { resolution, .. } => resolution.as_ref(),
            AttemptState::Abandoned { resolution, .. } => Some(resolution),
        }
    }

    /// When it ended, if it has.
    pub fn finished_at(&self) -> Option<Millis> {
        match self {
            AttemptState::Starting | AttemptState::Running | AttemptState::Unknown { .. } => None,
            AttemptState::Succeeded { at, .. }
            | AttemptState::Failed { at, .. }
            | AttemptState::Superseded { at, .. }
            | AttemptState::Cancelled { at, .. }
            | AttemptState::Abandoned { at, .. } => Some(*at),
        }
    }

    /// No effect of it can exist anywhere.
    pub fn certainly_did_nothing(&self) -> bool {
        match self {
            AttemptState::Failed { failure, .. } => failure.class.certainly_did_nothing(),
            AttemptState::Cancelled { never_sent, .. } => *never_sent,
            AttemptState::Starting
            | AttemptState::Running
            | AttemptState::Unknown { .. }
            | AttemptState::Succeeded { .. }
            | AttemptState::Superseded { .. }
            | AttemptState::Abandoned { .. } => false,
        }
    }
}
