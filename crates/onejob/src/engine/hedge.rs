//! A racing job whose newest attempt is silent gets another one beside it, at the next provider that has
//! proved itself. Never beside what is unknown or about to be sent, and never before jobs that wait for a
//! slot there.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use onejob_core::{AttemptId, Candidate, Effects, Event, JobId, Millis, Policy, Start, Trigger, Verdict, What, hedges};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::lane::{Lane, Slot};
use super::proof::Asks;
use super::{Inner, Stage, attempt};
use crate::id;
use crate::store::{Applied, Record, StoreError};

/// Between two looks for a slot, while none is free.
const SLOT_PAUSE: Duration = Duration::from_millis(100);

/// So often slots are looked for before the job is looked at again.
const SLOT_LOOKS: u32 = 20;

/// How long to leave a store alone that has just failed.
const AFTER_STORE_ERROR: Duration = Duration::from_secs(1);

/// Watches over one attempt's silence, as long as it is kept.
pub(super) struct Hedging {
    /// Closed when this is dropped.
    _over: watch::Sender<()>,
}

/// What is watched.
struct Watch {
    inner: Arc<Inner>,
    job: JobId,
    attempt: AttemptId,
    after: Duration,
}

/// What a look at the job came to.
enum Look {
    /// There is nothing more to do for this attempt.
    Over,
    /// Later.
    Again(Duration),
}

/// Begins to watch an attempt that runs, if its task hedges and has anywhere to go. It began at `started`.
pub(super) fn watch_over(inner: &Arc<Inner>, record: &Record, attempt: AttemptId, started: Instant) -> Option<Hedging> {
    let intent = record.intent.as_ref()?;
    let task = inner.config.tasks.get(&intent.task)?;
    let after = task.hedge_after?;
    if record.job.effects != Effects::Racing || intent.provider.is_some() || task.providers.len() < 2 {
        return None;
    }
    let (_over, mut ended) = watch::channel(());
    let watch = Watch { inner: inner.clone(), job: record.job.id, attempt, after };
    tokio::spawn(async move {
        let mut stage = watch.inner.stage.subscribe();
        let mut look_at = started + after;
        loop {
            tokio::select! {
                // In this order: whoever is told to stop while its time has come asks the store nothing more.
                biased;
                _ = ended.changed() => return,
                _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
                () = tokio::time::sleep_until(look_at) => {}
            }
            // From here to the end it is not broken off: what is recorded as starting is sent.
            let look = watch.look(&mut ended, &mut stage).await.unwrap_or_else(|error| {
                watch.inner.metrics.store_errors.inc();
                warn!(job = id::job_text(watch.job), %error, "could not look whether a silent job may race");
                Look::Again(AFTER_STORE_ERROR)
            });
            match look {
                Look::Over => return,
                Look::Again(pause) => look_at = Instant::now() + pause,
            }
        }
    });
    Some(Hedging { _over })
}

impl Watch {
    async fn look(
        &self,
        ended: &mut watch::Receiver<()>,
        stage: &mut watch::Receiver<Stage>,
    ) -> Result<Look, StoreError> {
        let inner = &self.inner;
        let Some(record) = inner.store.job(self.job).await? else { return Ok(Look::Over) };
        let Some(newest) = record.job.attempts.last() else { return Ok(Look::Over) };
        if !record.job.attempt(self.attempt).is_some_and(|ours| ours.state.is_live()) {
            return Ok(Look::Over);
        }
        let newest_open = record.job.attempts.iter().rev().find(|a| a.state.is_open());
        if newest_open.is_some_and(|open| open.id != self.attempt) {
            // That one is watched over by whoever sent it; it may end before ours.
            return Ok(Look::Again(self.after));
        }
        // One that came after ours and has failed was a sign of life, too.
        let silent_ms = inner.now() - newest.started_at;
        let after_ms = i64::try_from(self.after.as_millis()).unwrap_or(Millis::MAX);
        if silent_ms < after_ms {
            return Ok(Look::Again(Duration::from_millis((after_ms - silent_ms).unsigned_abs())));
        }
        let policy = inner.policy(&record, Asks::ToLook).await?;
        let candidates = hedges(&record.job, &policy);
        if candidates.is_empty() {
            return Ok(Look::Again(self.after.max(AFTER_STORE_ERROR)));
        }
        match self.slot(&candidates, ended, stage).await {
            Some((candidate, lane, slot)) => self.start(&record, &policy, candidate, lane, slot).await,
            None => Ok(Look::Again(Duration::ZERO)),
        }
    }

    /// A slot at the first of these that has one; waits for one a while, as long as the attempt is silent
    /// and the node does not stop.
    async fn slot<'a>(
        &self,
        candidates: &[&'a Candidate],
        ended: &mut watch::Receiver<()>,
        stage: &mut watch::Receiver<Stage>,
    ) -> Option<(&'a Candidate, Arc<Lane>, Slot)> {
        for _ in 0..SLOT_LOOKS {
            for candidate in candidates {
                let lane = self.inner.lanes.get(&candidate.provider).cloned();
                if let Some((lane, slot)) = lane.and_then(|lane| Some((lane.clone(), self.inner.slot_in_line(&lane)?)))
                {
                    return Some((candidate, lane, slot));
                }
            }
            tokio::select! {
                _ = ended.changed() => return None,
                _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return None,
                () = tokio::time::sleep(SLOT_PAUSE) => {}
            }
        }
        None
    }

    async fn start(
        &self,
        record: &Record,
        policy: &Policy,
        candidate: &Candidate,
        lane: Arc<Lane>,
        slot: Slot,
    ) -> Result<Look, StoreError> {
        let inner = &self.inner;
        let Some(primary) = policy.candidates.first() else { return Ok(Look::Over) };
        let start = Start {
            attempt: id::new_attempt_id(),
            provider: candidate.provider.clone(),
            primary: primary.provider.clone(),
            certificate: candidate.certificate,
            trigger: Trigger::Hedge { seen: u32::try_from(record.job.attempts.len()).unwrap_or(u32::MAX) },
            node: inner.member.node(),
        };
        let started = start.attempt;
        let event = Event { at: inner.now(), what: What::Start(start) };
        let applied = inner.store.apply(self.job, event).await;
        let applied = applied.inspect_err(|error| inner.not_stored(error, [started]))?;
        inner.observe(&applied);
        if let Applied::Done { record, verdict: Verdict::Started } = applied {
            let (job, silent) = (id::job_text(self.job), id::attempt_text(self.attempt));
            let attempt = id::attempt_text(started);
            info!(%job, %attempt, %silent, owner = %record.owner, provider = %lane.name, "an attempt is silent: another one races it");
            inner.metrics.hedges.inc();
            attempt::spawn(inner, &lane, slot, record);
        }
        // Refused: the certificate does not hold any more, or something else came first.
        Ok(Look::Again(self.after))
    }
}
