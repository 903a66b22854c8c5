//! The words for states, outcomes and who resolved what: the same in SQL, API and docs.

use super::{AttemptStateName, Effects, GiveUpClass, JobState, ResolvedBy};
use crate::failure::FailureClass;

impl JobState {
    /// All states, in the order of the design.
    pub const ALL: [JobState; 6] = [
        JobState::Queued,
        JobState::Running,
        JobState::Unknown,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
    ];

    /// The word for it, the same in SQL, API and docs.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Running => "running",
            JobState::Unknown => "unknown",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }

    /// The state of that word.
    pub fn parse(word: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// Succeeded, failed or cancelled.
    pub fn is_terminal(self) -> bool {
        match self {
            JobState::Queued | JobState::Running | JobState::Unknown => false,
            JobState::Succeeded | JobState::Failed | JobState::Cancelled => true,
        }
    }
}

impl AttemptStateName {
    /// All states, in the order of the design.
    pub const ALL: [AttemptStateName; 8] = [
        AttemptStateName::Starting,
        AttemptStateName::Running,
        AttemptStateName::Unknown,
        AttemptStateName::Succeeded,
        AttemptStateName::Failed,
        AttemptStateName::Superseded,
        AttemptStateName::Cancelled,
        AttemptStateName::Abandoned,
    ];

    /// The word for it, the same in SQL, API and docs.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptStateName::Starting => "starting",
            AttemptStateName::Running => "running",
            AttemptStateName::Unknown => "unknown",
            AttemptStateName::Succeeded => "succeeded",
            AttemptStateName::Failed => "failed",
            AttemptStateName::Superseded => "superseded",
            AttemptStateName::Cancelled => "cancelled",
            AttemptStateName::Abandoned => "abandoned",
        }
    }

    /// The state of that word.
    pub fn parse(word: &str) -> Option<AttemptStateName> {
        AttemptStateName::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// Whether it never changes again (R8).
    pub fn is_terminal(self) -> bool {
        match self {
            AttemptStateName::Starting | AttemptStateName::Running | AttemptStateName::Unknown => false,
            AttemptStateName::Succeeded
            | AttemptStateName::Failed
            | AttemptStateName::Superseded
            | AttemptStateName::Cancelled
            | AttemptStateName::Abandoned => true,
        }
    }
}

impl Effects {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Effects::Exclusive => "exclusive",
            Effects::Racing => "racing",
        }
    }
}

impl ResolvedBy {
    /// All, in the order of the design.
    pub const ALL: [ResolvedBy; 6] = [
        ResolvedBy::LateAnswer,
        ResolvedBy::Lookup,
        ResolvedBy::Callback,
        ResolvedBy::Replay,
        ResolvedBy::Operator,
        ResolvedBy::Policy,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ResolvedBy::LateAnswer => "late_answer",
            ResolvedBy::Lookup => "lookup",
            ResolvedBy::Callback => "callback",
            ResolvedBy::Replay => "replay",
            ResolvedBy::Operator => "operator",
            ResolvedBy::Policy => "policy",
        }
    }

    /// The one of that word.
    pub fn parse(word: &str) -> Option<ResolvedBy> {
        ResolvedBy::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

impl GiveUpClass {
    /// The word for it, as in the `error` of a job.
    pub fn as_str(self) -> &'static str {
        match self {
            GiveUpClass::Failure(class) => class.as_str(),
            GiveUpClass::Abandoned => "abandoned",
            GiveUpClass::Deadline => "deadline",
        }
    }

    /// The class of that word.
    pub fn parse(word: &str) -> Option<GiveUpClass> {
        match word {
            "abandoned" => Some(GiveUpClass::Abandoned),
            "deadline" => Some(GiveUpClass::Deadline),
            other => FailureClass::parse(other).map(GiveUpClass::Failure),
        }
    }
}
