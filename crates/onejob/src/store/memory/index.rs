//! The indexes of the reference store: who waits where, who is alive, who is unknown.

use std::cmp::Reverse;
use std::sync::Arc;

use onejob_core::{AttemptState, Slot, Touched};

use super::State;
use crate::store::{Record, Tombstone};

impl State {
    /// Puts `after` in the place of `before` and keeps the indexes true.
    pub(super) fn store(&mut self, before: Option<&Arc<Record>>, after: &Arc<Record>, touched: Option<Touched>) {
        if let Some(before) = before {
            self.unindex(before);
        }
        if let Some(Touched::Inserted(id)) = touched {
            self.by_attempt.insert(id, after.job.id);
        }
        if let Slot::Open { plan: Some(plan) } = &after.job.slot {
            let place = (Reverse(after.priority), plan.due_at, after.job.id);
            self.queues.entry(plan.provider.clone()).or_default().insert(place);
        }
        for attempt in &after.job.attempts {
            match &attempt.state {
                AttemptState::Starting | AttemptState::Running => {
                    self.live.insert((attempt.node, attempt.id));
                }
                AttemptState::Unknown { since, .. } => {
                    self.unknown.insert((*since, attempt.id));
                }
                AttemptState::Succeeded { .. }
                | AttemptState::Failed { .. }
                | AttemptState::Superseded { .. }
                | AttemptState::Cancelled { .. }
                | AttemptState::Abandoned { .. } => {}
            }
        }
        self.jobs.insert(after.job.id, after.clone());
    }

    fn unindex(&mut self, before: &Record) {
        if let Slot::Open { plan: Some(plan) } = &before.job.slot
            && let Some(line) = self.queues.get_mut(&plan.provider)
        {
            line.remove(&(Reverse(before.priority), plan.due_at, before.job.id));
            if line.is_empty() {
                self.queues.remove(&plan.provider);
            }
        }
        for attempt in &before.job.attempts {
            self.live.remove(&(attempt.node, attempt.id));
            if let AttemptState::Unknown { since, .. } = &attempt.state {
                self.unknown.remove(&(*since, attempt.id));
            }
        }
    }

    /// Takes a finished job away; only its key stays.
    pub(super) fn bury(&mut self, record: &Record) {
        let job = record.job.id;
        let tombstone = Tombstone { job, state: record.job.state(), ended_at: record.updated_at };
        let key = (record.owner.clone(), record.idempotency_key.clone());
        self.by_key.remove(&key);
        self.tombstones.insert(key, tombstone);
        for attempt in &record.job.attempts {
            self.by_attempt.remove(&attempt.id);
        }
        self.notices.remove(&job);
        self.jobs.remove(&job);
    }
}
