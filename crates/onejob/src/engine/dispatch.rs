//! The dispatcher of one provider: when a slot to send is free and a job is due, the job's next
//! attempt is recorded and sent. Nothing is leased ahead.

use std::sync::Arc;

use tracing::warn;

use super::lane::{Lane, Slot};
use super::{Inner, Stage, attempt};
use crate::id;
use crate::store::{Claim, MOST_UNPROVED, StoreError, Unproved};

/// Most attempts that one claim starts: a claim holds slots while it commits.
const CLAIM_BATCH: usize = 256;

/// Slots of a claim that only looks whether anything is due.
const LOOK_BATCH: usize = 64;

/// How long to leave a store alone that has just failed, in milliseconds.
const AFTER_STORE_ERROR_MS: i64 = 500;

/// Runs until the engine drains.
pub(crate) async fn run(inner: Arc<Inner>, lane: Arc<Lane>) {
    let mut stage = inner.stage.subscribe();
    // A predecessor may have left work.
    lane.keep_backlog();
    let mut next_due = Some(inner.now());
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            () = lane.wake.notified() => {}
            () = tokio::time::sleep_until(inner.nap(next_due)) => {}
        }
        // Said before we look, too: what comes due while we are about it must wake us again.
        lane.will_return(None);
        next_due = drain(&inner, &lane).await;
        lane.will_return(next_due);
    }
}

/// Starts what is due and fits; says when to come back.
async fn drain(inner: &Arc<Inner>, lane: &Arc<Lane>) -> Option<i64> {
    loop {
        let (told, has_more) = lane.waiting();
        let wanted = match (told, has_more) {
            (_, true) => CLAIM_BATCH,
            (0, false) => LOOK_BATCH,
            // One slot more than jobs, so that the claim sees the end of the line.
            (told, false) => CLAIM_BATCH.min(told + 1),
        };
        let take = || std::iter::from_fn(|| inner.slot(lane)).take(wanted).collect::<Vec<Slot>>();
        let mut slots = take();
        if slots.is_empty() {
            // Said before we look again: a slot that is given back while we find none must wake us.
            lane.keep_backlog();
            slots = take();
        }
        if slots.is_empty() {
            return None;
        }
        let held = slots.len();
        let attempts: Vec<_> = slots.iter().map(|_| id::new_attempt_id()).collect();
        let at = inner.now();
        let claim = Claim {
            provider: lane.name.clone(),
            attempts: attempts.clone(),
            node: inner.member.node(),
            contracts: inner.proofs.contracts(&lane.name),
            at,
        };
        let claimed = match inner.store.claim(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                inner.not_stored(&error, attempts);
                warn!(provider = %lane.name, %error, "could not claim queued jobs");
                lane.keep_backlog();
                return Some(at + AFTER_STORE_ERROR_MS);
            }
        };
        let got = claimed.records.len();
        for (slot, record) in slots.into_iter().zip(claimed.records) {
            inner.changes.publish(&record);
            if record.job.attempts.len() == 1 {
                let waited_ms = (at - record.run_at.unwrap_or(record.created_at)).max(0);
                inner.metrics.start_seconds.observe(waited_ms as f64 / 1000.0);
            }
            attempt::spawn(inner, lane, slot, record);
        }
        let again = replan(inner, &claimed.unproved).await;
        if got < held {
            lane.claimed_all(told);
            return come_back(claimed.next_due, again, claimed.unproved.len() >= MOST_UNPROVED);
        }
        lane.claimed_some(told, got);
    }
}

/// When to come back for what is due next and for what is left to others. If a claim saw nothing but these,
/// what is due next is behind them: to look again at once would see the same, and hold it meanwhile.
pub(super) fn come_back(next_due: Option<i64>, left: Option<i64>, saw_no_further: bool) -> Option<i64> {
    let next_due = next_due.filter(|_| left.is_none() || !saw_no_further);
    [next_due, left].into_iter().flatten().min()
}

/// Plans anew what may not start here. Says when to come back for what is left. A store that is away is
/// left alone, and a node that stops leaves the rest to the next.
pub(super) async fn replan(inner: &Inner, unproved: &[Unproved]) -> Option<i64> {
    let mut again = None;
    for unproved in unproved {
        if inner.draining() {
            break;
        }
        let planned = inner.replan(unproved).await;
        // A refusal is about this job; every other error is about the store.
        let is_away = matches!(&planned, Err(error) if !matches!(error, StoreError::Refused(_)));
        let left = planned.unwrap_or_else(|error| {
            inner.metrics.store_errors.inc();
            warn!(job = id::job_text(unproved.record.job.id), %error, "could not plan a job anew");
            Some(inner.now() + AFTER_STORE_ERROR_MS)
        });
        again = [again, left].into_iter().flatten().min();
        if is_away {
            break;
        }
    }
    again
}
