//! The jobs that need not be read again before they are written: what was written here lately and is
//! still open. A store says how it knows that they are still so: SQLite's writer is the only one there
//! is, PostgreSQL's statements look at the row's revision.

use std::collections::HashMap;
use std::sync::Arc;

use onejob_core::JobId;

use super::Record;

/// Something that stands for one job.
pub(super) trait Remember {
    /// The job as it is.
    fn record(&self) -> &Arc<Record>;
}

impl Remember for Arc<Record> {
    fn record(&self) -> &Arc<Record> {
        self
    }
}

/// A bounded memory of open jobs, in two generations: when the young one is full, the old one is
/// dropped and the young one grows old.
pub(super) struct Remembered<T> {
    young: HashMap<JobId, T>,
    old: HashMap<JobId, T>,
    young_bytes: usize,
    limit_bytes: usize,
}

impl<T: Remember + Clone> Remembered<T> {
    /// Remembers jobs of about `limit_bytes`; nothing if that is 0.
    pub(super) fn new(limit_bytes: usize) -> Remembered<T> {
        Remembered { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, limit_bytes: limit_bytes / 2 }
    }

    pub(super) fn get(&self, id: JobId) -> Option<&T> {
        self.young.get(&id).or_else(|| self.old.get(&id))
    }

    /// Remembers an open job; forgets a closed one, which is rarely written again.
    pub(super) fn put(&mut self, known: &T) {
        let record = known.record();
        let id = record.job.id;
        if record.job.state().is_terminal() {
            self.forget(id);
            return;
        }
        let bytes = weight(record);
        if self.young_bytes + bytes > self.limit_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if bytes <= self.limit_bytes {
            self.young_bytes += bytes;
            self.young.insert(id, known.clone());
        } else {
            // An older word about it must not outlive this one.
            self.forget(id);
        }
    }

    pub(super) fn forget(&mut self, id: JobId) {
        self.young.remove(&id);
        self.old.remove(&id);
    }

    pub(super) fn forget_all(&mut self) {
        self.young.clear();
        self.old.clear();
        self.young_bytes = 0;
    }
}

fn weight(record: &Record) -> usize {
    let input = record.intent.as_ref().map_or(0, |intent| intent.input.len());
    input + record.metadata.len() + 512 * (1 + record.job.attempts.len())
}
