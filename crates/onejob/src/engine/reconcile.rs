//! The sweeps: job deadlines, and the unknown attempts that a task's policy gives up.

use std::sync::Arc;

use onejob_core::{Event, Evidence, Millis, What};
use tracing::warn;

use super::{Inner, Stage, clock};
use crate::config::OnUnknown;
use crate::id;
use crate::store::{Applied, StoreError};

/// Rows that one sweep looks at. What is left over is due at once.
const SWEEP_BATCH: usize = 200;

/// How long to leave a store alone that has just failed, in milliseconds.
const AFTER_STORE_ERROR_MS: i64 = 1_000;

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
                Some(clock::now() + AFTER_STORE_ERROR_MS)
            }
        };
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            () = poked => {}
            () = tokio::time::sleep_until(clock::nap(next)) => {}
        }
    }
}

async fn expire_due(inner: Arc<Inner>) -> Result<Option<Millis>, StoreError> {
    for (job, deadline) in inner.store.queued_deadlines(SWEEP_BATCH).await? {
        let at = clock::now();
        if deadline > at {
            return Ok(Some(deadline));
        }
        let applied = inner.store.apply(job, Event { at, what: What::DeadlinePassed }).await?;
        inner.observe(&applied);
    }
    Ok(None)
}

async fn give_up_due(inner: Arc<Inner>) -> Result<Option<Millis>, StoreError> {
    let mut next: Option<Millis> = None;
    for task in inner.config.tasks.values() {
        let OnUnknown::AbandonAfter(patience) = task.on_unknown else { continue };
        let patience_ms = patience.as_millis() as Millis;
        for listed in inner.store.unknown_longest(task.name.clone(), SWEEP_BATCH).await? {
            let onejob_core::AttemptState::Unknown { since, .. } = listed.attempt.state else { continue };
            let at = clock::now();
            if since + patience_ms > at {
                next = Some(next.map_or(since + patience_ms, |n| n.min(since + patience_ms)));
                break;
            }
            let Some(record) = inner.store.job(listed.job).await? else { continue };
            let attempt = listed.attempt.id;
            let reason = format!("unknown for {patience:?}: the task declares on_unknown.abandon_after").into();
            let what =
                What::Abandoned { attempt, evidence: Evidence::Policy { reason }, follow: inner.follow(&record) };
            let applied = inner.store.apply(listed.job, Event { at, what }).await?;
            if let Applied::Done { .. } = &applied {
                warn!(
                    job = id::job_text(listed.job),
                    attempt = id::attempt_text(attempt),
                    "given up by the task's policy"
                );
                inner.metrics.attempt(&listed.attempt.provider, "abandoned");
            }
            inner.observe(&applied);
        }
    }
    Ok(next)
}
