//! Retention: finished jobs go in bounded steps, their keys stay.

use onejob_core::JobId;

use super::columns::{at, bind_ids, id, id_at};
use super::fault::Fault;
use super::lane::{RETRIES, step_aside};
use super::link::{Call, First, column, value};
use super::{Shared, sql};
use crate::store::{Prune, Pruned, Result};

/// See [`crate::store::Store::prune`].
pub(super) async fn prune(shared: &Shared, prune: &Prune) -> Result<Pruned> {
    shared.counters.commands(1);
    let mut tries = 0;
    loop {
        match step(shared, prune).await {
            // A lost commit too: what was buried is not found again.
            Err(Fault::Retry(_) | Fault::Away(_) | Fault::Ambiguous(_)) if tries < RETRIES => {
                tries += 1;
                step_aside(tries).await;
            }
            other => return Ok(other?),
        }
    }
}

async fn step(shared: &Shared, prune: &Prune) -> std::result::Result<Pruned, Fault> {
    let mut link = shared.work.get().await?;
    let most = i64::try_from(prune.limit).unwrap_or(i64::MAX);
    let bound = vec![value(id(prune.after.0)), value(id(prune.end())), value(prune.ended_before), value(most)];
    let answers = link.run(First::Begin, &[Call::new(&sql::PRUNABLE, bound)]).await?;
    let mut seen: Vec<(JobId, bool)> = Vec::new();
    for row in &answers[0] {
        seen.push((JobId(id_at(row, 0)?), at(row, 1)?));
    }
    let next = if seen.len() == prune.limit { seen.last().map(|(job, _)| *job) } else { None };
    let ended: Vec<JobId> = seen.into_iter().filter(|(_, may_go)| *may_go).map(|(job, _)| job).collect();
    if ended.is_empty() {
        link.roll_back().await;
        return Ok(Pruned { jobs: 0, next });
    }
    let calls = [
        Call::new(&sql::LOCK, bind_ids(&ended)),
        Call::new(&sql::BURY, vec![column(&ended, |job| id(job.0)), value(prune.ended_before)]),
    ];
    let answers = link.run(First::GoOn, &calls).await?;
    let buried: Vec<JobId> =
        answers[1].iter().map(|row| id_at(row, 0).map(JobId)).collect::<std::result::Result<_, _>>()?;
    let calls = [&sql::PRUNE_NOTICES, &sql::PRUNE_ATTEMPTS, &sql::PRUNE_JOB].map(|s| Call::new(s, bind_ids(&buried)));
    link.run(First::GoOn, &calls).await?;
    link.commit().await?;
    shared.counters.commit();
    Ok(Pruned { jobs: buried.len(), next })
}
