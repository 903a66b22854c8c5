//! What can be listed, and what a filter keeps.

use onejob_core::{Attempt, AttemptId, AttemptStateName, JobId, JobState, Text};

use super::Record;

/// Which jobs to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Of this owner.
    pub owner: Option<Text>,
    /// With this key.
    pub idempotency_key: Option<Text>,
    /// Of this task.
    pub task: Option<Text>,
    /// In this state.
    pub state: Option<JobState>,
    /// Only jobs older than this one: where the last page ended.
    pub before: Option<JobId>,
    /// At most so many.
    pub limit: usize,
}

/// Which attempts to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct AttemptFilter {
    /// Of this owner's jobs.
    pub owner: Option<Text>,
    /// Of jobs of this task.
    pub task: Option<Text>,
    /// At this provider.
    pub provider: Option<Text>,
    /// In this state.
    pub state: Option<AttemptStateName>,
    /// Only attempts older than this one: where the last page ended.
    pub before: Option<AttemptId>,
    /// At most so many.
    pub limit: usize,
}

/// An attempt in a list, with what is needed to understand it alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedAttempt {
    /// The attempt.
    pub attempt: Attempt,
    /// Its job.
    pub job: JobId,
    /// The job's owner.
    pub owner: Text,
    /// The job's task.
    pub task: Text,
}

impl JobFilter {
    /// Whether it keeps a job; where its page begins and ends is left to the caller.
    pub(super) fn keeps(&self, record: &Record) -> bool {
        let is_task = |task: &Text| record.intent.as_ref().is_some_and(|intent| intent.task == *task);
        self.owner.as_ref().is_none_or(|owner| record.owner == *owner)
            && self.idempotency_key.as_ref().is_none_or(|key| record.idempotency_key == *key)
            && self.task.as_ref().is_none_or(is_task)
            && self.state.is_none_or(|state| record.job.state() == state)
    }
}

impl AttemptFilter {
    /// Whether it keeps an attempt; where its page begins and ends is left to the caller.
    pub(super) fn keeps(&self, listed: &ListedAttempt) -> bool {
        self.owner.as_ref().is_none_or(|owner| listed.owner == *owner)
            && self.task.as_ref().is_none_or(|task| listed.task == *task)
            && self.provider.as_ref().is_none_or(|provider| listed.attempt.provider == *provider)
            && self.state.is_none_or(|state| listed.attempt.state.name() == state)
    }
}
