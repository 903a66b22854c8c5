//! One wave of commands: each job at most once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onejob_core::{JobId, Millis, Verdict};

use super::command::Outcome;
use super::write::{Duplicates, Planned};
use crate::store::Record;

/// What one wave does.
#[derive(Default)]
pub(super) struct Wave {
    pub(super) planned: Vec<Planned>,
    /// Whose command each change is, and what it comes to.
    pub(super) changes: Vec<(usize, Verdict)>,
    pub(super) counts: HashMap<JobId, Counting>,
    pub(super) busy: HashSet<JobId>,
}

#[derive(Default)]
pub(super) struct Counting {
    pub(super) times: i64,
    pub(super) at: Millis,
    /// Whose commands these are, and how many were counted with each.
    pub(super) of: Vec<(usize, i64)>,
}

pub(super) enum Placed {
    Answered(Outcome),
    InThisWave,
    InTheNext,
}

impl Wave {
    pub(super) fn count(&mut self, job: JobId, index: usize, times: u64, at: Millis) -> Placed {
        let times = i64::try_from(times).unwrap_or(i64::MAX);
        let counting = self.counts.entry(job).or_insert_with(|| Counting { at, ..Counting::default() });
        counting.times = counting.times.saturating_add(times);
        counting.of.push((index, times));
        Placed::InThisWave
    }
}

/// The record with the count that the row has: counting is no change, so memory may be behind.
pub(super) fn as_counted(record: Arc<Record>, duplicates: &Duplicates) -> Arc<Record> {
    match duplicates.get(&record.job.id) {
        Some(count) if count.unsigned_abs() != record.duplicates => {
            Arc::new(Record { duplicates: count.unsigned_abs(), ..Record::clone(&record) })
        }
        Some(_) | None => record,
    }
}
