//! Decided changes become rows: guarded multi-row statements, each job at most once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onejob_core::{Attempt, JobId, JobState, NodeId, Slot, Touched};

use super::columns::{
    Known, Written, at, bind_attempts, bind_completed, bind_filled, bind_ids, bind_notices, bind_queued, bind_starts,
    bind_touched, bind_written, id, id_at,
};
use super::fault::Fault;
use super::link::{Call, First, Link, value};
use super::nodes::lease_of;
use super::sql;
use crate::id::job_text;
use crate::store::row::{AttemptRow, JobRow};
use crate::store::{Record, StoredNotice};

/// One job's change, decided and not yet written.
pub(super) struct Planned {
    pub(super) before: Known,
    pub(super) after: Arc<Record>,
    pub(super) kind: Kind,
    pub(super) notices: Vec<StoredNotice>,
}

/// What a change writes beside its notices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    OnlyNotices,
    /// What was asked, where nothing was asked before.
    FillIn,
    /// The job, and one of its attempts or none.
    Change(Option<Touched>),
}

/// How often each written job was asked for by now.
pub(super) type Duplicates = HashMap<JobId, i64>;

/// Writes changes of different jobs, or nothing of them. `lease` is the node that must be alive if
/// attempts start.
///
/// # Errors
///
/// [`Fault::Stale`] names the jobs whose guards found no row.
pub(super) async fn write(
    link: &mut Link<'_>,
    first: First,
    planned: &[&Planned],
    lease: Option<NodeId>,
) -> Result<Duplicates, Fault> {
    let rows = Rows::of(planned);
    let mut calls = rows.calls();
    let jobs = rows.jobs();
    let of_jobs = calls.iter().filter(|(part, _)| *part == Part::Job).count();
    let of_attempts = calls.iter().position(|(part, _)| *part == Part::Attempts).map(|p| (p, rows.attempts.len()));
    let of_starts = calls.iter().position(|(part, _)| *part == Part::Starts).map(|p| (p, rows.starts.len()));
    let lease = lease_of(lease, rows.starts.iter().map(|(_, attempt)| *attempt))?;
    if let Some(node) = lease {
        calls.push((Part::Lease, Call::new(&sql::LEASE, vec![value(id(node.0))])));
    }
    let calls: Vec<Call<'_>> = calls.into_iter().map(|(_, call)| call).collect();
    let answers = link.run(first, &calls).await?;
    // Said last and read first: without a lease nothing else matters.
    if lease.is_some() && answers.last().is_none_or(Vec::is_empty) {
        return Err(Fault::NoLease);
    }
    let mut duplicates = Duplicates::new();
    for row in answers.iter().take(of_jobs).flatten() {
        duplicates.insert(JobId(id_at(row, 0)?), at(row, 1)?);
    }
    let stale: Vec<JobId> = jobs.into_iter().filter(|job| !duplicates.contains_key(job)).collect();
    if !stale.is_empty() {
        return Err(Fault::Stale(stale));
    }
    for (place, expected) in [of_attempts, of_starts].into_iter().flatten() {
        let written: BTreeSet<u128> = answers[place].iter().map(|row| id_at(row, 0)).collect::<Result<_, _>>()?;
        if written.len() != expected {
            // The job was as it was known and its attempt was not.
            return Err(Fault::Row(format!("{} of {expected} attempts could be written", written.len())));
        }
    }
    Ok(duplicates)
}

/// A fault of a change that was decided on rows which are held: then a guard that finds nothing is no
/// race but damage.
pub(super) fn stopped_by_a_guard(jobs: &[JobId]) -> Fault {
    let names: Vec<String> = jobs.iter().map(|job| job_text(*job)).collect();
    Fault::Row(format!("a guard did not let {} through", names.join(", ")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Job,
    Attempts,
    Starts,
    Lease,
    Other,
}

/// The rows of each statement.
#[derive(Default)]
struct Rows<'a> {
    completed: Vec<Written>,
    written: Vec<Written>,
    touched: Vec<Written>,
    filled: Vec<JobRow>,
    attempts: Vec<(JobId, AttemptRow)>,
    starts: Vec<(JobId, &'a Attempt)>,
    dequeued: Vec<JobId>,
    queued: Vec<JobRow>,
    notices: Vec<StoredNotice>,
}

impl<'a> Rows<'a> {
    fn of(planned: &[&'a Planned]) -> Rows<'a> {
        let mut sorted = planned.to_vec();
        // Everybody writes in the order of the ids: nobody waits in a circle.
        sorted.sort_by_key(|planned| planned.after.job.id);
        let mut rows = Rows::default();
        for planned in sorted {
            match planned.kind {
                Kind::OnlyNotices => {}
                Kind::FillIn => rows.filled.push(JobRow::of(&planned.after)),
                Kind::Change(touched) => rows.change(planned, touched),
            }
            rows.notices.extend(planned.notices.iter().cloned());
        }
        rows
    }

    fn change(&mut self, planned: &'a Planned, touched: Option<Touched>) {
        let (before, after) = (&planned.before.record.job, &planned.after.job);
        let row = || JobRow::of(&planned.after);
        let written =
            Written { revision_read: planned.before.revision, version_read: i64::from(before.version), row: row() };
        match (&before.slot, &after.slot) {
            (Slot::Filled { .. }, _) => self.touched.push(written),
            (_, Slot::Filled { .. }) => self.completed.push(written),
            (
                Slot::Open { .. } | Slot::GivenUp(_) | Slot::Cancelled,
                Slot::Open { .. } | Slot::GivenUp(_) | Slot::Cancelled,
            ) => self.written.push(written),
        }
        match touched {
            None => {}
            Some(Touched::Inserted(attempt)) => {
                self.starts.extend(after.attempt(attempt).map(|attempt| (after.id, attempt)));
            }
            Some(Touched::Updated(attempt)) => {
                self.attempts.extend(after.attempt(attempt).map(|attempt| (after.id, AttemptRow::of(attempt))));
            }
        }
        if before.state() == JobState::Queued {
            self.dequeued.push(after.id);
        }
        if after.state() == JobState::Queued {
            self.queued.push(row());
        }
    }

    /// The jobs whose guards must find a row.
    fn jobs(&self) -> Vec<JobId> {
        let written = [&self.completed, &self.written, &self.touched].into_iter().flatten().map(|w| w.row.id);
        written.chain(self.filled.iter().map(|row| row.id)).map(JobId).collect()
    }

    /// The jobs first: whoever has a job's row has all that belongs to it.
    fn calls(&self) -> Vec<(Part, Call<'_>)> {
        let rows = self;
        let all = [
            (!rows.completed.is_empty())
                .then(|| (Part::Job, Call::new(&sql::COMPLETE, bind_completed(&rows.completed)))),
            (!rows.written.is_empty()).then(|| (Part::Job, Call::new(&sql::WRITE_JOB, bind_written(&rows.written)))),
            (!rows.touched.is_empty()).then(|| (Part::Job, Call::new(&sql::TOUCH_JOB, bind_touched(&rows.touched)))),
            (!rows.filled.is_empty()).then(|| (Part::Job, Call::new(&sql::FILL_IN, bind_filled(&rows.filled)))),
            (!rows.attempts.is_empty())
                .then(|| (Part::Attempts, Call::new(&sql::WRITE_ATTEMPT, bind_attempts(&rows.attempts)))),
            (!rows.starts.is_empty()).then(|| (Part::Starts, Call::new(&sql::START, bind_starts(&rows.starts)))),
            (!rows.dequeued.is_empty()).then(|| (Part::Other, Call::new(&sql::DEQUEUE, bind_ids(&rows.dequeued)))),
            (!rows.queued.is_empty()).then(|| (Part::Other, Call::new(&sql::ENQUEUE, bind_queued(&rows.queued)))),
            (!rows.notices.is_empty()).then(|| (Part::Other, Call::new(&sql::NOTICE, bind_notices(&rows.notices)))),
        ];
        all.into_iter().flatten().collect()
    }
}
