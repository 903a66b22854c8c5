//! How records come to be and what a change makes of them: the steps that all stores share.

use std::fmt;
use std::sync::Arc;

use onejob_core::{
    AttemptId, AttemptState, Change, Effects, Job, JobId, Millis, NodeId, Slot, Start, Text, Touched, Trigger,
};

use super::{Record, Submit};

/// Called by a store between a decision and its write. For tests: it holds a decision open until a
/// second one is on its way, so that a missing lock shows every time and not once in a while.
#[derive(Clone)]
pub struct Hold(Arc<dyn Fn(JobId) + Send + Sync>);

impl Hold {
    /// Calls `between` with the job's id; it may block.
    pub fn new(between: impl Fn(JobId) + Send + Sync + 'static) -> Hold {
        Hold(Arc::new(between))
    }

    pub(super) fn between(&self, job: JobId) {
        (self.0)(job);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

impl Record {
    /// The result, once the job has succeeded.
    pub fn result(&self) -> Option<serde_json::Value> {
        match &self.job.slot {
            Slot::Filled { result, .. } => crate::json::parse_stored(result).ok(),
            Slot::Open { .. } | Slot::GivenUp(_) | Slot::Cancelled => None,
        }
    }
}

impl Submit {
    /// The new job, before any attempt.
    pub(super) fn record(&self) -> Record {
        Record {
            job: Job::new(self.id, self.effects, self.deadline, self.plan.clone()),
            owner: self.owner.clone(),
            idempotency_key: self.idempotency_key.clone(),
            intent: Some(self.intent.clone()),
            metadata: self.metadata.clone(),
            priority: self.priority,
            run_at: self.run_at,
            duplicates: 0,
            created_at: self.at,
            updated_at: self.at,
        }
    }

    /// The start that is written in the commit that makes the job. One that stands on a certificate is not:
    /// the job waits in line, and is claimed with a look at the certificate.
    pub(super) fn start_at_once(&self) -> Option<Start> {
        let start = self.start.as_ref().filter(|start| start.provider == start.primary)?;
        Some(Start { certificate: None, ..start.clone() })
    }

    /// The job that was cancelled by its key before this post arrived, now with what was asked.
    pub(super) fn filled_in(&self, cancelled: &Record) -> Record {
        Record {
            intent: Some(self.intent.clone()),
            metadata: self.metadata.clone(),
            priority: self.priority,
            run_at: self.run_at,
            updated_at: self.at,
            ..cancelled.clone()
        }
    }
}

/// A job that was cancelled by its key before any post: its first post finds it cancelled.
pub(super) fn cancelled_unseen(id: JobId, owner: Text, idempotency_key: Text, at: Millis) -> Record {
    let job = Job {
        id,
        // Nobody has said; nothing will ever start under it, so the stricter word stands.
        effects: Effects::Exclusive,
        version: 1,
        slot: Slot::Cancelled,
        deadline: None,
        tries_from: 0,
        attempts: Vec::new(),
    };
    Record {
        job,
        owner,
        idempotency_key,
        intent: None,
        metadata: "{}".into(),
        priority: 0,
        run_at: None,
        duplicates: 0,
        created_at: at,
        updated_at: at,
    }
}

/// Whether a change writes the job or one of its attempts; notices may be written without either.
pub(super) fn writes_the_job(before: &Job, change: &Change) -> bool {
    let plans_anew = match (&before.slot, &change.job.slot) {
        (Slot::Open { plan: before }, Slot::Open { plan: after }) => before != after,
        (Slot::Open { .. } | Slot::Filled { .. } | Slot::GivenUp(_) | Slot::Cancelled, _) => false,
    };
    change.touched.is_some() || change.job.version != before.version || plans_anew
}

/// The record for which a change stands afterwards.
pub(super) fn record_after(before: &Record, change: Change, at: Millis) -> Record {
    let updated_at = if writes_the_job(&before.job, &change) { at } else { before.updated_at };
    let mut job = change.job;
    if let Some(Touched::Updated(id)) = change.touched {
        // The delay was used to plan what follows; it is no part of what is remembered.
        for attempt in job.attempts.iter_mut().filter(|a| a.id == id) {
            if let AttemptState::Failed { failure, .. } = &mut attempt.state {
                failure.retry_after_ms = None;
            }
        }
    }
    Record {
        job,
        owner: before.owner.clone(),
        idempotency_key: before.idempotency_key.clone(),
        intent: before.intent.clone(),
        metadata: before.metadata.clone(),
        updated_at,
        ..*before
    }
}

/// The start that a queued job's own plan asks for.
pub(super) fn planned_start(record: &Record, attempt: AttemptId, node: NodeId) -> Option<Start> {
    let Slot::Open { plan: Some(plan) } = &record.job.slot else { return None };
    Some(Start {
        attempt,
        provider: plan.provider.clone(),
        primary: plan.primary.clone(),
        certificate: plan.certificate,
        trigger: Trigger::Plan,
        node,
    })
}
