//! A commit was sent and its end is not known: finding out.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use onejob_core::{JobId, Touched};

use super::columns::{Known, bind_ids, read_jobs};
use super::fault::Fault;
use super::link::{Call, First};
use super::write::{Kind, Planned};
use super::{Shared, sql};
use crate::store::Record;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the changes of one transaction were committed; `None` if that could not be found out in time,
/// or cannot be told any more because others have written since.
///
/// The rows are held for it: if the lost transaction is still on its way to its end on the server, this
/// waits for it.
pub(super) async fn resolve(shared: &Shared, written: &[Planned]) -> Option<bool> {
    let mut jobs: Vec<JobId> = written.iter().map(|planned| planned.after.job.id).collect();
    jobs.sort();
    jobs.dedup();
    if jobs.is_empty() {
        // Counts of duplicates alone: once more does no harm.
        return Some(false);
    }
    let end = Instant::now() + shared.options.resolve_within;
    loop {
        match look(shared, &jobs).await {
            Ok(now) => return told_by(&now, written),
            Err(fault) => {
                tracing::warn!(?fault, "it is not known yet whether a transaction was committed");
                if Instant::now() > end {
                    return None;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn look(shared: &Shared, jobs: &[JobId]) -> Result<HashMap<JobId, Known>, Fault> {
    let mut link = shared.work.get().await?;
    let calls = [Call::new(&sql::LOCK, bind_ids(jobs)), Call::new(&sql::JOB_BY_ID, bind_ids(jobs))];
    let answers = link.run(First::Begin, &calls).await?;
    link.roll_back().await;
    Ok(read_jobs(&answers[1])?.into_iter().filter_map(|(job, read)| Some((job, read.ok()?))).collect())
}

/// A transaction stands or falls as a whole: one row that tells is enough.
fn told_by(now: &HashMap<JobId, Known>, written: &[Planned]) -> Option<bool> {
    written.iter().find_map(|planned| {
        let now = now.get(&planned.after.job.id)?;
        match planned.kind {
            Kind::OnlyNotices => None,
            Kind::FillIn | Kind::Change(_) if now.revision <= planned.before.revision => Some(false),
            Kind::Change(Some(Touched::Inserted(attempt))) => Some(now.record.job.attempt(attempt).is_some()),
            Kind::FillIn | Kind::Change(None | Some(Touched::Updated(_))) => {
                let next = now.revision == planned.before.revision + 1;
                (next && is_same(&now.record, &planned.after)).then_some(true)
            }
        }
    })
}

fn is_same(now: &Record, after: &Record) -> bool {
    Record { duplicates: 0, ..now.clone() } == Record { duplicates: 0, ..after.clone() }
}
