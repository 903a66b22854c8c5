//! The reference store: `decide` over a map, under one mutex. What the other stores do must look
//! like this from outside; the model-based test compares every answer and every row.

mod certificates;
mod index;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onejob_core::{
    AttemptId, Cause, CertificateId, Event, Illegal, JobId, Millis, NodeId, Text, Touched, What, decide,
};

use super::notice::{MOST_OF_A_KIND, conflict_notice, duplicate_notice, stored_notices};
use super::record::{Hold, cancelled_unseen, planned_start, record_after};
use super::{
    Applied, AttemptFilter, COUNT_CAP, Census, Certificate, Checked, Claim, Claimed, Glance, JobFilter, ListedAttempt,
    MOST_UNPROVED, Prune, Pruned, Record, Result, StoreError, StoredNotice, Submit, Submitted, Tombstone,
    VerificationId, Work,
};

/// Jobs in memory. Nothing survives the process.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    hold: Option<Hold>,
}

/// Where a queued job stands in its provider's line.
type Place = (Reverse<i32>, Millis, JobId);

#[derive(Default)]
struct State {
    jobs: BTreeMap<JobId, Arc<Record>>,
    by_key: HashMap<(Text, Text), JobId>,
    by_attempt: BTreeMap<AttemptId, JobId>,
    queues: BTreeMap<Text, BTreeSet<Place>>,
    live: BTreeSet<(NodeId, AttemptId)>,
    unknown: BTreeSet<(Millis, AttemptId)>,
    notices: HashMap<JobId, Vec<StoredNotice>>,
    tombstones: HashMap<(Text, Text), Tombstone>,
    certificates: BTreeMap<CertificateId, Certificate>,
    checked: BTreeMap<(Text, Text), Checked>,
    last_runs: HashMap<(Text, Text), VerificationId>,
    work: Work,
    is_closed: bool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// An empty store that calls `hold` between each decision and its write.
    pub fn with_hold(hold: Hold) -> MemoryStore {
        MemoryStore { state: Mutex::default(), hold: Some(hold) }
    }

    /// See [`super::Store::submit`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn submit(&self, submit: Submit) -> Result<Submitted> {
        let mut state = self.writing()?;
        let key = (submit.owner.clone(), submit.idempotency_key.clone());
        if let Some(record) = state.by_key.get(&key).and_then(|id| state.jobs.get(id)).cloned() {
            return Ok(state.meet(&record, &submit));
        }
        if let Some(tombstone) = state.tombstones.get(&key) {
            return Ok(Submitted::Expired(*tombstone));
        }
        if state.jobs.contains_key(&submit.id) {
            return Err(StoreError::Refused("a new job has the id of another".into()));
        }
        let mut record = submit.record();
        let mut touched = None;
        if let Some(start) = submit.start_at_once() {
            let event = Event { at: submit.at, what: What::Start(start) };
            // Not due yet, or not allowed: it waits in line.
            if let Ok(change) = decide(&record.job, &event) {
                state.refuse_a_taken_id(change.touched)?;
                touched = change.touched;
                record = record_after(&record, change, submit.at);
            }
        }
        let record = Arc::new(record);
        state.by_key.insert(key, record.job.id);
        state.store(None, &record, touched);
        Ok(Submitted::New(record))
    }

    /// See [`super::Store::count_duplicates`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn count_duplicates(&self, job: JobId, times: u64, at: Millis) -> Result<Option<Arc<Record>>> {
        let mut state = self.writing()?;
        let Some(record) = state.jobs.get(&job).cloned() else { return Ok(None) };
        Ok(Some(state.count(&record, times, at)))
    }

    /// See [`super::Store::apply`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn apply(&self, job: JobId, event: Event) -> Result<Applied> {
        let mut state = self.writing()?;
        match state.jobs.get(&job).cloned() {
            Some(record) => {
                let event = state.proved(&record, event);
                state.apply(&record, &event, self.hold.as_ref())
            }
            None => Ok(Applied::NoSuchJob),
        }
    }

    /// See [`super::Store::cancel_by_key`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn cancel_by_key(
        &self,
        owner: Text,
        idempotency_key: Text,
        new_id: JobId,
        at: Millis,
    ) -> Result<Applied> {
        let mut state = self.writing()?;
        let key = (owner, idempotency_key);
        if let Some(record) = state.by_key.get(&key).and_then(|id| state.jobs.get(id)).cloned() {
            return state.apply(&record, &Event { at, what: What::Cancel }, self.hold.as_ref());
        }
        if let Some(tombstone) = state.tombstones.get(&key) {
            return Ok(Applied::Expired(*tombstone));
        }
        if state.jobs.contains_key(&new_id) {
            return Err(StoreError::Refused("a new job has the id of another".into()));
        }
        let record = Arc::new(cancelled_unseen(new_id, key.0.clone(), key.1.clone(), at));
        state.by_key.insert(key, new_id);
        state.store(None, &record, None);
        Ok(Applied::Done { record, verdict: onejob_core::Verdict::Cancelled })
    }

    /// See [`super::Store::claim`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let mut state = self.writing()?;
        let due: Vec<JobId> = state.line(&claim.provider).filter(|p| p.1 <= claim.at).map(|p| p.2).collect();
        let mut claimed = Claimed::default();
        let mut passed_over = BTreeSet::new();
        let mut attempts = claim.attempts.iter();
        let mut slot = attempts.next();
        for id in due {
            let (Some(attempt), Some(record)) = (slot, state.jobs.get(&id).cloned()) else { break };
            if claimed.unproved.len() == MOST_UNPROVED {
                break;
            }
            let Some(start) = planned_start(&record, *attempt, claim.node) else { continue };
            let start = state.standing(start, &record, Some(&claim.contracts), claim.at);
            match state.apply(&record, &Event { at: claim.at, what: What::Start(start) }, self.hold.as_ref())? {
                Applied::Done { record, .. } => {
                    claimed.records.push(record);
                    slot = attempts.next();
                }
                Applied::Refused { record, why: Illegal::NotVerified { .. } } => {
                    claimed.unproved.push(state.unproved(record, claim.at));
                    passed_over.insert(id);
                }
                Applied::Refused { .. } | Applied::NoSuchJob | Applied::Expired(_) => {
                    passed_over.insert(id);
                }
            }
        }
        claimed.next_due = state.line(&claim.provider).filter(|p| !passed_over.contains(&p.2)).map(|p| p.1).min();
        Ok(claimed)
    }

    /// See [`super::Store::reap`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn reap(&self, alive: NodeId, at: Millis, limit: usize) -> Result<Vec<Arc<Record>>> {
        let mut state = self.writing()?;
        let dead: Vec<AttemptId> = state.live.iter().filter(|l| l.0 != alive).map(|l| l.1).take(limit).collect();
        let mut reaped = Vec::new();
        for attempt in dead {
            let Some(record) = state.job_of(attempt) else { continue };
            let event = Event { at, what: What::Silent { attempt, cause: Cause::NodeDied } };
            match state.apply(&record, &event, self.hold.as_ref())? {
                Applied::Done { record, .. } => reaped.push(record),
                Applied::Refused { .. } | Applied::NoSuchJob | Applied::Expired(_) => {}
            }
        }
        Ok(reaped)
    }

    /// See [`super::Store::prune`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn prune(&self, prune: Prune) -> Result<Pruned> {
        let mut state = self.writing()?;
        let range = (Bound::Excluded(prune.after), Bound::Excluded(JobId(prune.end())));
        if prune.after.0 >= prune.end() {
            return Ok(Pruned::default());
        }
        let seen: Vec<Arc<Record>> =
            state.jobs.range(range).take(prune.limit).map(|(_, record)| record.clone()).collect();
        let next = if seen.len() == prune.limit { seen.last().map(|record| record.job.id) } else { None };
        let ended = seen.iter().filter(|record| prune.takes(record));
        let jobs = ended.map(|record| state.bury(record)).count();
        Ok(Pruned { jobs, next })
    }

    /// See [`super::Store::jobs_unlike`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn jobs_unlike(&self, seen: Vec<Glance>) -> Result<Vec<Arc<Record>>> {
        let state = self.open()?;
        let now = seen.iter().filter_map(|seen| Some((seen, state.jobs.get(&seen.job)?)));
        Ok(now.filter(|(seen, now)| **seen != Glance::at(now)).map(|(_, now)| now.clone()).collect())
    }

    /// See [`super::Store::job`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job(&self, id: JobId) -> Result<Option<Arc<Record>>> {
        Ok(self.open()?.jobs.get(&id).cloned())
    }

    /// See [`super::Store::job_of_attempt`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn job_of_attempt(&self, id: AttemptId) -> Result<Option<Arc<Record>>> {
        Ok(self.open()?.job_of(id))
    }

    /// See [`super::Store::list_jobs`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<Arc<Record>>> {
        let state = self.open()?;
        let end = filter.before.map_or(Bound::Unbounded, Bound::Excluded);
        let older = state.jobs.range((Bound::Unbounded, end)).rev().map(|(_, record)| record);
        Ok(older.filter(|record| filter.keeps(record)).take(filter.limit).cloned().collect())
    }

    /// See [`super::Store::list_attempts`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list_attempts(&self, filter: AttemptFilter) -> Result<Vec<ListedAttempt>> {
        let state = self.open()?;
        let end = filter.before.map_or(Bound::Unbounded, Bound::Excluded);
        let older = state.by_attempt.range((Bound::Unbounded, end)).rev().filter_map(|(id, _)| state.listed(*id));
        Ok(older.filter(|listed| filter.keeps(listed)).take(filter.limit).collect())
    }

    /// See [`super::Store::unknown_longest`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn unknown_longest(&self, task: Text, limit: usize) -> Result<Vec<ListedAttempt>> {
        let state = self.open()?;
        let longest_first = state.unknown.iter().filter_map(|(_, id)| state.listed(*id));
        Ok(longest_first.filter(|listed| listed.task == task).take(limit).collect())
    }

    /// See [`super::Store::queued_deadlines`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn queued_deadlines(&self, limit: usize) -> Result<Vec<(JobId, Millis)>> {
        let state = self.open()?;
        let queued = state.queues.values().flatten().filter_map(|place| state.jobs.get(&place.2));
        let mut deadlines: Vec<(JobId, Millis)> =
            queued.filter_map(|record| Some((record.job.id, record.job.deadline?))).collect();
        deadlines.sort_by_key(|(id, deadline)| (*deadline, *id));
        deadlines.truncate(limit);
        Ok(deadlines)
    }

    /// See [`super::Store::awaited_providers`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn awaited_providers(&self) -> Result<Vec<Text>> {
        Ok(self.open()?.queues.keys().cloned().collect())
    }

    /// See [`super::Store::notices`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn notices(&self, job: JobId) -> Result<Vec<StoredNotice>> {
        Ok(self.open()?.notices.get(&job).cloned().unwrap_or_default())
    }

    /// See [`super::Store::census`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn census(&self) -> Result<Census> {
        let state = self.open()?;
        let queued: usize = state.queues.values().map(BTreeSet::len).sum();
        Ok(Census {
            queued_jobs: (queued as u64).min(COUNT_CAP),
            unknown_attempts: (state.unknown.len() as u64).min(COUNT_CAP),
            oldest_unknown_since: state.unknown.first().map(|u| u.0),
            oldest_due: state.queues.values().flatten().map(|place| place.1).min(),
        })
    }

    /// See [`super::Store::ping`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn ping(&self) -> Result<()> {
        self.open().map(drop)
    }

    /// See [`super::Store::work`].
    pub fn work(&self) -> Work {
        self.lock().work
    }

    /// See [`super::Store::close`].
    pub async fn close(&self) {
        self.lock().is_closed = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.is_closed { Err(StoreError::Unavailable("the store is closed".into())) } else { Ok(state) }
    }

    fn writing(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.open()?;
        state.work.commits += 1;
        state.work.commands += 1;
        Ok(state)
    }
}

impl State {
    /// A post met a job that has its key.
    fn meet(&mut self, record: &Arc<Record>, submit: &Submit) -> Submitted {
        let Some(intent) = &record.intent else {
            let filled = Arc::new(submit.filled_in(record));
            self.store(Some(record), &filled, None);
            return Submitted::Same(filled);
        };
        if intent.fingerprint == submit.intent.fingerprint {
            return Submitted::Same(self.count(record, 1, submit.at));
        }
        self.note(conflict_notice(record.job.id, &submit.intent, submit.at));
        Submitted::OtherIntent(record.clone())
    }

    fn count(&mut self, record: &Arc<Record>, times: u64, at: Millis) -> Arc<Record> {
        if times == 0 {
            return record.clone();
        }
        if record.duplicates == 0 {
            self.note(duplicate_notice(record.job.id, at));
        }
        let duplicates = record.duplicates.saturating_add(times);
        let counted = Arc::new(Record { duplicates, ..Record::clone(record) });
        self.store(Some(record), &counted, None);
        counted
    }

    fn apply(&mut self, record: &Arc<Record>, event: &Event, hold: Option<&Hold>) -> Result<Applied> {
        let change = match decide(&record.job, event) {
            Ok(change) => change,
            Err(why) => return Ok(Applied::Refused { record: record.clone(), why }),
        };
        if let Some(hold) = hold {
            hold.between(record.job.id);
        }
        let (verdict, touched) = (change.verdict.clone(), change.touched);
        self.refuse_a_taken_id(touched)?;
        for notice in stored_notices(&change, event.at) {
            self.note(notice);
        }
        let after = Arc::new(record_after(record, change, event.at));
        self.store(Some(record), &after, touched);
        Ok(Applied::Done { record: after, verdict })
    }

    fn refuse_a_taken_id(&self, touched: Option<Touched>) -> Result<()> {
        match touched {
            Some(Touched::Inserted(id)) if self.by_attempt.contains_key(&id) => {
                Err(StoreError::Refused("a new attempt has the id of another".into()))
            }
            Some(Touched::Inserted(_) | Touched::Updated(_)) | None => Ok(()),
        }
    }

    fn note(&mut self, notice: StoredNotice) {
        let notices = self.notices.entry(notice.job).or_default();
        if notices.iter().filter(|known| known.kind == notice.kind).count() < MOST_OF_A_KIND {
            notices.push(notice);
        }
    }

    fn line(&self, provider: &Text) -> impl Iterator<Item = &Place> {
        self.queues.get(provider).into_iter().flatten()
    }

    fn job_of(&self, attempt: AttemptId) -> Option<Arc<Record>> {
        self.jobs.get(self.by_attempt.get(&attempt)?).cloned()
    }

    fn listed(&self, id: AttemptId) -> Option<ListedAttempt> {
        let record = self.jobs.get(self.by_attempt.get(&id)?)?;
        Some(ListedAttempt {
            attempt: record.job.attempt(id)?.clone(),
            job: record.job.id,
            owner: record.owner.clone(),
            task: record.intent.as_ref()?.task.clone(),
        })
    }
}
