//! The sweeps: job deadlines, and the unknown attempts that a task's policy gives up.

use std::sync::Arc;
use std::time::Duration;

use onejob_core::{AttemptState, Event, Evidence, JobId, Millis, Text, What};
use tracing::warn;

use super::{Inner, Stage};
use crate::config::OnUnknown;
use crate::id;
use crate::store::{Applied, ListedAttempt, Prune, StoreError};

/// Rows that one sweep looks at. What is left over is due at once.
pub(super) const SWEEP_BATCH: usize = 200;

/// How long to leave a store alone that has just failed, in milliseconds.
const AFTER_STORE_ERROR_MS: i64 = 1_000;

/// Between two looks for jobs whose retention has passed, in milliseconds.
const PRUNE_EVERY_MS: i64 = 60_000;

/// Fails queued jobs whose deadline has passed. Runs until the engine drains.
pub(crate) async fn expire_jobs(inner: Arc<Inner>) {
    run(inner, expire_due).await;
}

/// Abandons unknown attempts as their tasks' `on_unknown` declares. Runs until the engine drains.
pub(crate) async fn give_up_unknowns(inner: Arc<Inner>) {
    if inner.config.tasks.values().any(|task| task.on_unknown != OnUnknown::Hold) {
        run(inner, give_up_due).await;
    }
}

/// Takes jobs away whose retention has passed, in small steps. Runs until the engine drains.
pub(crate) async fn prune_finished(inner: Arc<Inner>) {
    run(inner, prune_due).await;
}

async fn prune_due(inner: Arc<Inner>) -> Result<Option<Millis>, StoreError> {
    let retention_ms = i64::try_from(inner.config.server.retention.as_millis()).unwrap_or(i64::MAX);
    let ended_before = inner.now().saturating_sub(retention_ms);
    let mut after = JobId(0);
    loop {
        if inner.draining() {
            return Ok(None);
        }
        let pruned = inner.store.prune(Prune { after, ended_before, limit: SWEEP_BATCH }).await?;
        match pruned.next {
            Some(next) => after = next,
            None => break,
        }
        // Callers go first.
        tokio::task::yield_now().await;
    }
    while inner.store.prune_certificates(ended_before, SWEEP_BATCH).await? == SWEEP_BATCH {
        tokio::task::yield_now().await;
    }
    Ok(Some(inner.now() + PRUNE_EVERY_MS))
}

async fn run<F>(inner: Arc<Inner>, sweep: fn(Arc<Inner>) -> F)
where
    F: Future<Output = Result<Option<Millis>, StoreError>>,
{
    let mut stage = inner.stage.subscribe();
    loop {
        let poked = inner.sweep.notified();
        let next = match sweep(inner.clone()).await {
            Ok(next) => next,
            Err(error) => {
                inner.metrics.store_errors.inc();
                warn!(%error, "a sweep could not finish");
                Some(inner.now() + AFTER_STORE_ERROR_MS)
            }
        };
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            () = poked => {}
            () = tokio::time::sleep_until(inner.nap(next)) => {}
        }
    }
}

pub(super) async fn expire_due(inner: Arc<Inner>) -> Result<Option<Millis>, StoreError> {
    let queued = inner.store.queued_deadlines(SWEEP_BATCH).await?;
    let more = queued.len() == SWEEP_BATCH;
    let mut expired = 0;
    for (job, deadline) in queued {
        let at = inner.now();
        if deadline > at {
            return Ok(Some(deadline));
        }
        let applied = inner.store.apply(job, Event { at, what: What::DeadlinePassed }).await?;
        expired += usize::from(matches!(applied, Applied::Done { .. }));
        inner.observe(&applied);
    }
    Ok(at_once_if(&inner, more && expired > 0))
}

pub(super) async fn give_up_due(inner: Arc<Inner>) -> Result<Option<Millis>, StoreError> {
    let mut next: Option<Millis> = None;
    for task in inner.config.tasks.values() {
        let OnUnknown::AbandonAfter(patience) = task.on_unknown else { continue };
        let due = give_up_due_of(&inner, task.name.clone(), patience).await?;
        next = [next, due].into_iter().flatten().min();
    }
    Ok(next)
}

async fn give_up_due_of(inner: &Inner, task: Text, patience: Duration) -> Result<Option<Millis>, StoreError> {
    let unknown = inner.store.unknown_longest(task, SWEEP_BATCH).await?;
    let more = unknown.len() == SWEEP_BATCH;
    let mut given_up = 0;
    for listed in unknown {
        let AttemptState::Unknown { since, .. } = listed.attempt.state else { continue };
        let due = since + patience.as_millis() as Millis;
        if due > inner.now() {
            return Ok(Some(due));
        }
        given_up += usize::from(give_up(inner, &listed, patience).await?);
    }
    Ok(at_once_if(inner, more && given_up > 0))
}

async fn give_up(inner: &Inner, listed: &ListedAttempt, patience: Duration) -> Result<bool, StoreError> {
    let Some(record) = inner.store.job(listed.job).await? else { return Ok(false) };
    let attempt = listed.attempt.id;
    let reason = format!("unknown for {patience:?}: the task declares on_unknown.abandon_after").into();
    let follow = inner.follow(&record, None).await?;
    let what = What::Abandoned { attempt, evidence: Evidence::Policy { reason }, follow };
    let applied = inner.store.apply(listed.job, Event { at: inner.now(), what }).await?;
    let done = matches!(applied, Applied::Done { .. });
    if done {
        let (job, attempt) = (id::job_text(listed.job), id::attempt_text(attempt));
        warn!(%job, %attempt, owner = %record.owner, provider = %listed.attempt.provider, "given up by the task's policy");
        inner.metrics.attempt(&listed.attempt.provider, "abandoned");
    }
    inner.observe(&applied);
    Ok(done)
}

/// A sweep that filled its batch and got on with it has more to do. One that got nowhere does not come
/// back at once, or it would do nothing else.
fn at_once_if(inner: &Inner, more: bool) -> Option<Millis> {
    more.then(|| inner.now())
}
