//! Who is told when a job changes: callers that wait for its end. In this process only, and only a
//! hint: whoever waits reads the store once after it has subscribed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use onejob_core::{JobId, JobState};
use tokio::sync::watch;

use crate::store::Record;

/// The waiting callers, by job. A job that nobody waits for costs one look into a map.
#[derive(Default)]
pub(crate) struct Changes {
    watched: Mutex<HashMap<JobId, watch::Sender<Option<Arc<Record>>>>>,
}

/// One caller's interest in one job.
pub(crate) struct Interest {
    changes: Arc<Changes>,
    job: JobId,
    news: watch::Receiver<Option<Arc<Record>>>,
}

impl Changes {
    /// From now on `job`'s changes reach the returned interest.
    pub(crate) fn watch(self: &Arc<Changes>, job: JobId) -> Interest {
        let mut watched = self.lock();
        let news = watched.entry(job).or_insert_with(|| watch::channel(None).0).subscribe();
        Interest { changes: self.clone(), job, news }
    }

    /// Tells whoever waits for this job.
    pub(crate) fn publish(&self, record: &Arc<Record>) {
        if let Some(sender) = self.lock().get(&record.job.id) {
            sender.send_replace(Some(record.clone()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, watch::Sender<Option<Arc<Record>>>>> {
        // A panic while holding it leaves a map that is still whole.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interest {
    /// The next change, whenever it comes.
    pub(crate) async fn changed(&mut self) -> Option<Arc<Record>> {
        match self.news.changed().await {
            Ok(()) => self.news.borrow_and_update().clone(),
            Err(_) => None,
        }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut watched = self.changes.lock();
        // Our own receiver still counts: one means nobody else waits.
        if watched.get(&self.job).is_some_and(|sender| sender.receiver_count() <= 1) {
            watched.remove(&self.job);
        }
    }
}

/// Whether a waiting caller has what it waits for: the end, or the word that nobody knows.
pub(crate) fn ends_a_wait(record: &Record) -> bool {
    let state = record.job.state();
    state.is_terminal() || state == JobState::Unknown
}
