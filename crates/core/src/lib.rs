//! The rules of onejob, and nothing else: what a job and an attempt are, what may happen to them,
//! what a failure means and what follows it.
//!
//! This crate has no dependencies, does no I/O, knows no clock and draws no random numbers. Times,
//! ids, digests and jitter come in with the [`Event`]. Everything that changes a job goes through
//! [`decide`]; a store locks the job, asks, and writes the answer down.
//!
//! Reading order: [`job`], [`event`], [`mod@decide`], [`failure`], [`mod@next`].

pub mod id;
pub mod job;
pub mod event;
pub mod decide;
pub mod failure;
pub mod next;

#[cfg(test)]
mod model;

pub use decide::{Change, Illegal, Touched, Verdict, decide};
pub use event::{Digest, Dropped, Event, Evidence, Follow, LateWord, Notice, Payload, Start, Trigger, What};
pub use failure::{Cause, Failure, FailureClass, Line, Meaning, Observation, Override, Phase, meaning_of};
pub use id::{AttemptId, CertificateId, JobId, NodeId};
pub use job::{
    Attempt, AttemptState, AttemptStateName, Effects, Failover, GiveUpClass, GivenUp, Job, JobState, Millis, Plan,
    Resolution, ResolvedBy, Seen, Slot, Text, Usage,
};
pub use next::{Candidate, Next, Policy, hedges, next, opening};
