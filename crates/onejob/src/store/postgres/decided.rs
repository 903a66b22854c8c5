//! Asking `decide` about a job that this node knows, and what is to be written then.

use std::sync::Arc;

use onejob_core::{Event, Illegal, Verdict, decide};

use super::columns::Known;
use super::write::{Kind, Planned};
use crate::store::notice::stored_notices;
use crate::store::record::{Hold, record_after, writes_the_job};

/// What an event makes of a job.
pub(super) enum Decided {
    /// A rule forbids it.
    Refused(Illegal),
    /// There is nothing to write.
    Nothing(Verdict),
    /// This is to be written.
    Write(Planned, Verdict),
}

/// Decides, and holds the decision open where a test wants it.
pub(super) fn decided(known: &Known, event: &Event, hold: Option<&Hold>) -> Decided {
    let change = match decide(&known.record.job, event) {
        Ok(change) => change,
        Err(why) => return Decided::Refused(why),
    };
    if let Some(hold) = hold {
        let job = known.record.job.id;
        // A test's hold blocks; the connections go on meanwhile.
        tokio::task::block_in_place(|| hold.between(job));
    }
    let verdict = change.verdict.clone();
    let notices: Vec<_> = stored_notices(&change, event.at).collect();
    if writes_the_job(&known.record.job, &change) {
        let kind = Kind::Change(change.touched);
        let after = Arc::new(record_after(&known.record, change, event.at));
        return Decided::Write(Planned { before: known.clone(), after, kind, notices }, verdict);
    }
    if notices.is_empty() {
        return Decided::Nothing(verdict);
    }
    let after = known.record.clone();
    Decided::Write(Planned { before: known.clone(), after, kind: Kind::OnlyNotices, notices }, verdict)
}
