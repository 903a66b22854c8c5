//! What a person does: start an attempt by hand, open a failed job again, say what became of an
//! unknown attempt.

use std::sync::Arc;
use std::time::Duration;

use onejob_core::{
    AttemptId, Event, Evidence, Failure, FailureClass, JobId, Start, Text, Trigger, Verdict, What, decide,
};
use serde_json::Value;

use super::lane::{Lane, Slot};
use super::proof::Asks;
use super::{Engine, Inner, attempt, detached, payload, submit};
use crate::contract::Violation;
use crate::id;
use crate::store::{Applied, Record, StoreError};

/// How long a start by hand waits for a slot to send.
const BY_HAND_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a start by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ByHand {
    /// The attempt, the last of the job, is on its way.
    Started(Arc<Record>),
    /// What the store said instead.
    Not(Applied),
    /// The task or the provider is not configured, or not for this task.
    NoSuchProvider(String),
    /// No slot to send became free in time.
    NoRoom,
}

/// What an operator says of an unknown attempt.
#[derive(Clone, PartialEq, Debug)]
pub enum Word {
    /// The work was done, with this result.
    Succeeded(Value),
    /// It did not happen.
    Failed,
    /// Nobody will ever know; go on.
    Abandoned,
}

/// What became of an operator's word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// What the store said.
    Told(Applied),
    /// The result does not pass the task's contract; nothing was written.
    BreaksContract(Violation),
}

impl Engine {
    /// Opens a failed job again.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn retry(&self, record: &Record) -> Result<ByHand, StoreError> {
        let Some(intent) = &record.intent else {
            return self.tell(record.job.id, None, What::Reopen { provider: "".into() }).await.map(ByHand::Not);
        };
        let policy = self.inner.task_of(record).map(|task| task.policy(intent.provider.as_deref()));
        let Some(first) = policy.and_then(|policy| policy.candidates.first().map(|c| c.provider.clone())) else {
            return Ok(ByHand::NoSuchProvider(format!("the task {} is not configured any more", intent.task)));
        };
        self.tell(record.job.id, None, What::Reopen { provider: first }).await.map(ByHand::Not)
    }

    /// Starts an attempt by hand, at `provider` or at the task's first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn start_by_hand(
        &self,
        record: &Record,
        provider: Option<&str>,
        force: bool,
    ) -> Result<ByHand, StoreError> {
        let job = record.job.id;
        let policy = self.inner.policy(record, Asks::ToLook).await?;
        let Some(primary) = policy.candidates.first().map(|c| c.provider.clone()) else {
            return Ok(ByHand::NoSuchProvider("the task of this job is not configured any more".into()));
        };
        let provider: Text = provider.map_or_else(|| primary.clone(), Text::from);
        let candidate = policy.candidates.iter().find(|c| c.provider == provider);
        let lane = self.inner.lanes.get(&provider).cloned();
        let (Some(candidate), Some(lane)) = (candidate, lane) else {
            return Ok(ByHand::NoSuchProvider(format!("{provider} is no provider of this job's task")));
        };
        let trigger = Trigger::Hand { force };
        let start = Start {
            attempt: id::new_attempt_id(),
            provider,
            primary,
            certificate: candidate.certificate,
            trigger,
            node: self.inner.member.node(),
        };
        let inner = self.inner.clone();
        detached(async move {
            let slot = match inner.slot_by_hand(&lane, job, &start).await? {
                Ok(slot) => slot,
                Err(why) => return Ok(why),
            };
            let id = start.attempt;
            let event = Event { at: inner.now(), what: What::Start(start) };
            let applied = inner.store.apply(job, event).await.inspect_err(|error| inner.not_stored(error, [id]))?;
            inner.observe(&applied);
            Ok(match applied {
                Applied::Done { record, verdict: Verdict::Started } => {
                    attempt::spawn(&inner, &lane, slot, record.clone());
                    ByHand::Started(record)
                }
                other => ByHand::Not(other),
            })
        })
        .await
    }

    /// An operator's word about an unknown attempt. A result must pass the task's contract.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn resolve(
        &self,
        record: &Record,
        attempt: AttemptId,
        word: Word,
        reason: Text,
    ) -> Result<Resolved, StoreError> {
        let evidence = Evidence::Operator { reason: reason.clone() };
        let what = match word {
            Word::Succeeded(result) => match self.accept(record, result) {
                Ok(result) => What::Succeeded { attempt, result: payload(&result), seen: Default::default(), evidence },
                Err(violation) => return Ok(Resolved::BreaksContract(violation)),
            },
            Word::Failed => What::Failed {
                attempt,
                failure: Failure { message: reason, ..Failure::from(FailureClass::NotExecuted) },
                seen: Default::default(),
                evidence,
                follow: self.inner.follow(record, None).await?,
            },
            Word::Abandoned => What::Abandoned { attempt, evidence, follow: self.inner.follow(record, None).await? },
        };
        self.tell(record.job.id, Some(attempt), what).await.map(Resolved::Told)
    }

    fn accept(&self, record: &Record, result: Value) -> Result<Value, Violation> {
        match self.inner.task_of(record) {
            Some(task) => submit::accepted(&task.output, record, result),
            None => Ok(result),
        }
    }
}

impl Inner {
    /// A slot for a start by hand, or why there is none. A rule that forbids the start is named at once,
    /// not waited out: the slot that is missing may well be held by the very attempt that is in flight.
    async fn slot_by_hand(
        &self,
        lane: &Arc<Lane>,
        job: JobId,
        start: &Start,
    ) -> Result<Result<Slot, ByHand>, StoreError> {
        for patience in [Duration::ZERO, BY_HAND_PATIENCE] {
            if let Some(slot) = self.slot_soon(lane, patience).await {
                return Ok(Ok(slot));
            }
            let Some(record) = self.store.job(job).await? else { return Ok(Err(ByHand::Not(Applied::NoSuchJob))) };
            let event = Event { at: self.now(), what: What::Start(start.clone()) };
            if let Err(why) = decide(&record.job, &event) {
                return Ok(Err(ByHand::Not(Applied::Refused { record, why })));
            }
        }
        Ok(Err(ByHand::NoRoom))
    }

    /// A slot, waiting at most `patience` for one.
    async fn slot_soon(&self, lane: &Arc<Lane>, patience: Duration) -> Option<Slot> {
        let end = tokio::time::Instant::now() + patience;
        loop {
            if self.draining() {
                return None;
            }
            if let Some(slot) = self.slot(lane) {
                return Some(slot);
            }
            if tokio::time::Instant::now() >= end {
                return None;
            }
            // Rare and by hand: a look every so often is simpler than a queue of its own.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
