//! stub

use std::sync::Arc;

use onejob_core::{AttemptId, Event, JobId, Millis, NodeId, Text};

use super::{
    Applied, AttemptFilter, Census, Claim, Claimed, JobFilter, ListedAttempt, Record, Result, StoredNotice, Submit,
    Submitted, Work,
};

/// stub
pub struct SqliteStore {}

#[allow(missing_docs, unused_variables)]
impl SqliteStore {
    pub async fn submit(&self, submit: Submit) -> Result<Submitted> {
        todo!()
    }
    pub async fn count_duplicates(&self, job: JobId, times: u64, at: Millis) -> Result<Option<Arc<Record>>> {
        todo!()
    }
    pub async fn apply(&self, job: JobId, event: Event) -> Result<Applied> {
        todo!()
    }
    pub async fn cancel_by_key(&self, owner: Text, key: Text, new_id: JobId, at: Millis) -> Result<Applied> {
        todo!()
    }
    pub async fn claim(&self, claim: Claim) -> Result<Claimed> {
        todo!()
    }
    pub async fn reap(&self, alive: NodeId, at: Millis, limit: usize) -> Result<Vec<Arc<Record>>> {
        todo!()
    }
    pub async fn job(&self, id: JobId) -> Result<Option<Arc<Record>>> {
        todo!()
    }
    pub async fn job_of_attempt(&self, id: AttemptId) -> Result<Option<Arc<Record>>> {
        todo!()
    }
    pub async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<Arc<Record>>> {
        todo!()
    }
    pub async fn list_attempts(&self, filter: AttemptFilter) -> Result<Vec<ListedAttempt>> {
        todo!()
    }
    pub async fn unknown_longest(&self, task: Text, limit: usize) -> Result<Vec<ListedAttempt>> {
        todo!()
    }
    pub async fn queued_deadlines(&self, limit: usize) -> Result<Vec<(JobId, Millis)>> {
        todo!()
    }
    pub async fn awaited_providers(&self) -> Result<Vec<Text>> {
        todo!()
    }
    pub async fn notices(&self, job: JobId) -> Result<Vec<StoredNotice>> {
        todo!()
    }
    pub async fn census(&self) -> Result<Census> {
        todo!()
    }
    pub async fn ping(&self) -> Result<()> {
        todo!()
    }
    pub fn work(&self) -> Work {
        todo!()
    }
    pub async fn close(&self) {
        todo!()
    }
}

impl SqliteStore {
    /// Opens or makes the file, takes its lock, migrates it.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn open(path: &std::path::Path) -> std::result::Result<SqliteStore, OpenError> {
        let _ = path;
        todo!()
    }
}

/// stub
#[derive(Debug, thiserror::Error)]
#[error("stub")]
pub struct OpenError;
