//! Who is told when a job changes: callers that wait for its end. What happens on other nodes comes in through
//! `member`. Only a hint: whoever waits reads the store once after it has subscribed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use onejob_core::{JobId, JobState};
use tokio::sync::watch;

use crate::store::{Glance, Record};

/// The waiting callers, by job. A job that nobody waits for costs one look into a map.
#[derive(Default)]
pub(crate) struct Changes {
    watched: Mutex<HashMap<JobId, Watched>>,
}

/// A job that somebody waits for.
struct Watched {
    news: watch::Sender<Option<Arc<Record>>>,
    /// As whoever waits saw it last.
    seen: Option<Glance>,
    /// Counted here, under the lock: of two that leave at once, the second must know that it is the last.
    waiting: usize,
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
        let entry =
            watched.entry(job).or_insert_with(|| Watched { news: watch::channel(None).0, seen: None, waiting: 0 });
        entry.waiting += 1;
        Interest { changes: self.clone(), job, news: entry.news.subscribe() }
    }

    /// Tells whoever waits for this job.
    pub(crate) fn publish(&self, record: &Arc<Record>) {
        if let Some(watched) = self.lock().get_mut(&record.job.id) {
            watched.seen = Some(Glance::at(record));
            watched.news.send_replace(Some(record.clone()));
        }
    }

    /// The jobs that somebody waits for, as they were seen last.
    pub(crate) fn glances(&self) -> Vec<Glance> {
        self.lock().values().filter_map(|watched| watched.seen).collect()
    }

    /// Jobs that somebody waits for now.
    #[cfg(test)]
    pub(super) fn watched(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, Watched>> {
        // A panic while holding it leaves a map that is still whole.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interest {
    /// Says how the job stood when the caller read it.
    pub(crate) fn saw(&self, record: &Record) {
        if let Some(watched) = self.changes.lock().get_mut(&self.job) {
            watched.seen.get_or_insert(Glance::at(record));
        }
    }

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
        if let Some(entry) = watched.get_mut(&self.job) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                watched.remove(&self.job);
            }
        }
    }
}

/// Whether a waiting caller has what it waits for: the end, or the word that nobody knows.
pub(crate) fn ends_a_wait(record: &Record) -> bool {
    let state = record.job.state();
    state.is_terminal() || state == JobState::Unknown
}
