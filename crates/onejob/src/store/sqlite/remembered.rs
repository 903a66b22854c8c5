//! The jobs that the writer need not read again: what it wrote lately and what is still open.
//!
//! Only the writer changes the file, so what it wrote last is what the file says, until a
//! transaction is rolled back: then everything is forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use onejob_core::JobId;

use crate::store::Record;

/// A bounded memory of open jobs, in two generations: when the young one is full, the old one is
/// dropped and the young one grows old.
pub(super) struct Remembered {
    young: HashMap<JobId, Arc<Record>>,
    old: HashMap<JobId, Arc<Record>>,
    young_bytes: usize,
    limit_bytes: usize,
}

impl Remembered {
    /// Remembers jobs of about `limit_bytes`; nothing if that is 0.
    pub(super) fn new(limit_bytes: usize) -> Remembered {
        Remembered { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, limit_bytes: limit_bytes / 2 }
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Arc<Record>> {
        self.young.get(&id).or_else(|| self.old.get(&id))
    }

    /// Remembers an open job; forgets a closed one, which is rarely written again.
    pub(super) fn put(&mut self, record: &Arc<Record>) {
        let id = record.job.id;
        if record.job.state().is_terminal() {
            self.young.remove(&id);
            self.old.remove(&id);
            return;
        }
        let bytes = weight(record);
        if self.young_bytes + bytes > self.limit_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if bytes <= self.limit_bytes {
            self.young_bytes += bytes;
            self.young.insert(id, record.clone());
        } else {
            // An older word about it must not outlive this one.
            self.young.remove(&id);
            self.old.remove(&id);
        }
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
