//! The verbs that write, inside the writer's open transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use onejob_core::{
    AttemptId, Cause, Event, Illegal, JobId, Millis, NodeId, Slot, Text, Touched, Verdict, What, decide,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::columns::{id, id_at, insert_attempt, insert_job, load, read_tombstone, update_attempt, update_job};
use super::fault::Fault;
use super::{read, sql};
use crate::id::job_text;
use crate::store::notice::{MOST_OF_A_KIND, conflict_notice, duplicate_notice, stored_notices};
use crate::store::record::{Hold, cancelled_unseen, planned_start, record_after, writes_the_job};
use crate::store::remembered::Remembered;
use crate::store::{
    Applied, Claim, Claimed, MOST_UNPROVED, Prune, Pruned, Record, StoredNotice, Submit, Submitted, Tombstone,
};

/// What a command works on.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) remembered: &'a mut Remembered<Arc<Record>>,
    pub(super) hold: Option<&'a Hold>,
}

impl Transaction<'_> {
    pub(super) fn submit(&mut self, submit: &Submit) -> Result<Submitted, Fault> {
        let mut record = submit.record();
        if let Some(start) = submit.start_at_once() {
            let event = Event { at: submit.at, what: What::Start(start) };
            // Not due yet, or not allowed: it waits in line.
            if let Ok(change) = decide(&record.job, &event) {
                record = record_after(&record, change, submit.at);
            }
        }
        if let Some(tombstone) = self.tombstone(&submit.owner, &submit.idempotency_key)? {
            return Ok(Submitted::Expired(tombstone));
        }
        if self.insert(&record)? {
            let record = Arc::new(record);
            self.remembered.put(&record);
            return Ok(Submitted::New(record));
        }
        let found = self.by_key(&submit.owner, &submit.idempotency_key)?;
        let Some(found) = found else {
            return Err(Fault::Refused("a key is taken and no job has it".into()));
        };
        let Some(intent) = &found.intent else {
            return self.fill_in(&found, submit).map(Submitted::Same);
        };
        if intent.fingerprint == submit.intent.fingerprint {
            return self.count(&found, 1, submit.at).map(Submitted::Same);
        }
        self.note(&conflict_notice(found.job.id, &submit.intent, submit.at))?;
        Ok(Submitted::OtherIntent(found))
    }

    pub(super) fn count_duplicates(
        &mut self,
        job: JobId,
        times: u64,
        at: Millis,
    ) -> Result<Option<Arc<Record>>, Fault> {
        match self.job(job)? {
            Some(record) => self.count(&record, times, at).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn apply(&mut self, job: JobId, event: &Event) -> Result<Applied, Fault> {
        let Some(record) = self.job(job)? else { return Ok(Applied::NoSuchJob) };
        match self.proved(&record, event)? {
            Some(event) => self.apply_to(&record, &event),
            None => self.apply_to(&record, event),
        }
    }

    pub(super) fn cancel_by_key(
        &mut self,
        owner: &Text,
        key: &Text,
        new_id: JobId,
        at: Millis,
    ) -> Result<Applied, Fault> {
        if let Some(tombstone) = self.tombstone(owner, key)? {
            return Ok(Applied::Expired(tombstone));
        }
        let record = cancelled_unseen(new_id, owner.clone(), key.clone(), at);
        if self.insert(&record)? {
            return Ok(Applied::Done { record: Arc::new(record), verdict: Verdict::Cancelled });
        }
        match self.by_key(owner, key)? {
            Some(found) => self.apply_to(&found, &Event { at, what: What::Cancel }),
            None => Err(Fault::Refused("a key is taken and no job has it".into())),
        }
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Claimed, Fault> {
        let mut claimed = Claimed::default();
        let mut passed_over = BTreeSet::new();
        let mut above = i64::MAX;
        while let Some(priority) = read::next_priority(self.connection, &claim.provider, above)? {
            above = priority;
            self.claim_at(claim, priority, &mut claimed, &mut passed_over)?;
            let due = read::next_due(self.connection, &claim.provider, priority, &passed_over)?;
            claimed.next_due = [claimed.next_due, due].into_iter().flatten().min();
        }
        Ok(claimed)
    }

    /// Starts what is due at one priority, as long as there are slots. A job that the rules do not
    /// let start is passed over, so that it cannot hold up those behind it.
    fn claim_at(
        &mut self,
        claim: &Claim,
        priority: i64,
        claimed: &mut Claimed,
        passed_over: &mut BTreeSet<JobId>,
    ) -> Result<(), Fault> {
        let mut last = (Millis::MIN, JobId(0));
        loop {
            let slots = claim.attempts.len() - claimed.records.len();
            let due = read::due(self.connection, &claim.provider, priority, claim.at, last, slots)?;
            let Some(end) = due.last().filter(|_| claimed.unproved.len() < MOST_UNPROVED) else { return Ok(()) };
            last = *end;
            for (_, job) in due {
                let Some(record) = self.sound_job(job)? else {
                    passed_over.insert(job);
                    continue;
                };
                let attempt = claim.attempts[claimed.records.len()];
                let Some(start) = planned_start(&record, attempt, claim.node) else { continue };
                let start = self.standing(start, &record, Some(&claim.contracts), claim.at)?;
                match self.apply_to(&record, &Event { at: claim.at, what: What::Start(start) })? {
                    Applied::Done { record, .. } => claimed.records.push(record),
                    Applied::Refused { record, why: Illegal::NotVerified { .. } } => {
                        claimed.unproved.push(self.unproved(record, claim.at)?);
                        passed_over.insert(job);
                    }
                    Applied::Refused { .. } | Applied::NoSuchJob | Applied::Expired(_) => {
                        passed_over.insert(job);
                    }
                }
            }
        }
    }

    pub(super) fn reap(&mut self, alive: NodeId, at: Millis, limit: usize) -> Result<Vec<Arc<Record>>, Fault> {
        let mut dead: Vec<(AttemptId, JobId)> = Vec::new();
        for statement in [sql::REAP_BEFORE, sql::REAP_AFTER] {
            let mut statement = self.connection.prepare_cached(statement)?;
            let mut rows = statement.query(params![id(alive.0), read::limit(limit - dead.len())])?;
            while let Some(row) = rows.next()? {
                dead.push((AttemptId(id_at(row, 0)?), JobId(id_at(row, 1)?)));
            }
        }
        let mut reaped = Vec::new();
        for (attempt, job) in dead {
            let event = Event { at, what: What::Silent { attempt, cause: Cause::NodeDied } };
            let Some(record) = self.sound_job(job)? else { continue };
            match self.apply_to(&record, &event)? {
                Applied::Done { record, .. } => reaped.push(record),
                Applied::Refused { .. } | Applied::NoSuchJob | Applied::Expired(_) => {}
            }
        }
        Ok(reaped)
    }

    pub(super) fn prune(&mut self, prune: &Prune) -> Result<Pruned, Fault> {
        let mut seen: Vec<(JobId, bool)> = Vec::new();
        {
            let mut statement = self.connection.prepare_cached(sql::PRUNABLE)?;
            let ids = (id(prune.after.0), id(prune.end()));
            let mut rows = statement.query(params![ids.0, ids.1, prune.ended_before, read::limit(prune.limit)])?;
            while let Some(row) = rows.next()? {
                seen.push((JobId(id_at(row, 0)?), row.get(1)?));
            }
        }
        let next = if seen.len() == prune.limit { seen.last().map(|(job, _)| *job) } else { None };
        seen.retain(|(_, may_go)| *may_go);
        for (job, _) in &seen {
            for statement in [sql::BURY, sql::PRUNE_NOTICES, sql::PRUNE_ATTEMPTS, sql::PRUNE_JOB] {
                self.connection.prepare_cached(statement)?.execute(params![id(job.0)])?;
            }
        }
        Ok(Pruned { jobs: seen.len(), next })
    }

    fn tombstone(&self, owner: &Text, key: &Text) -> Result<Option<Tombstone>, Fault> {
        let mut statement = self.connection.prepare_cached(sql::TOMBSTONE)?;
        let mut rows = statement.query(params![owner, key])?;
        match rows.next()? {
            Some(row) => Ok(Some(read_tombstone(row)?)),
            None => Ok(None),
        }
    }

    /// Writes the first page again as it is: nothing changes, and the commit shows that the disk takes
    /// what it is given.
    pub(super) fn ping(&mut self) -> Result<(), Fault> {
        let version: i64 = self.connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        self.connection.pragma_update(None, "user_version", version)?;
        Ok(())
    }

    /// The job, from memory or from the file.
    fn job(&mut self, job: JobId) -> Result<Option<Arc<Record>>, Fault> {
        if let Some(record) = self.remembered.get(job) {
            return Ok(Some(record.clone()));
        }
        let record = load(self.connection, job)?.map(Arc::new);
        if let Some(record) = &record {
            self.remembered.put(record);
        }
        Ok(record)
    }

    /// The job; none if its rows mean nothing: it holds up neither the line nor a start of the server.
    fn sound_job(&mut self, job: JobId) -> Result<Option<Arc<Record>>, Fault> {
        match self.job(job) {
            Err(Fault::Refused(why)) => {
                tracing::error!(job = job_text(job), error = %why, "a damaged job is passed over");
                Ok(None)
            }
            sound_or_broken => sound_or_broken,
        }
    }

    fn by_key(&mut self, owner: &Text, key: &Text) -> Result<Option<Arc<Record>>, Fault> {
        let mut statement = self.connection.prepare_cached(sql::JOB_BY_KEY)?;
        let found = statement.query_row(params![owner, key], |row| id_at(row, 0)).optional()?;
        match found {
            Some(job) => self.job(JobId(job)),
            None => Ok(None),
        }
    }

    /// Inserts a new job and its attempt, if it has one; false if its key is taken.
    fn insert(&mut self, record: &Record) -> Result<bool, Fault> {
        if insert_job(&mut self.connection.prepare_cached(sql::SUBMIT)?, record)? == 0 {
            return Ok(false);
        }
        for attempt in &record.job.attempts {
            insert_attempt(&mut self.connection.prepare_cached(sql::START)?, record, attempt)?;
        }
        Ok(true)
    }

    fn apply_to(&mut self, before: &Arc<Record>, event: &Event) -> Result<Applied, Fault> {
        let change = match decide(&before.job, event) {
            Ok(change) => change,
            Err(why) => return Ok(Applied::Refused { record: before.clone(), why }),
        };
        if let Some(hold) = self.hold {
            hold.between(before.job.id);
        }
        for notice in stored_notices(&change, event.at) {
            self.note(&notice)?;
        }
        let verdict = change.verdict.clone();
        if !writes_the_job(&before.job, &change) {
            return Ok(Applied::Done { record: before.clone(), verdict });
        }
        let touched = change.touched;
        let after = Arc::new(record_after(before, change, event.at));
        self.write(before, &after, touched)?;
        self.remembered.put(&after);
        Ok(Applied::Done { record: after, verdict })
    }

    fn write(&mut self, before: &Record, after: &Record, touched: Option<Touched>) -> Result<(), Fault> {
        let job = &after.job;
        match touched {
            None => {}
            Some(Touched::Inserted(attempt)) => {
                let Some(attempt) = job.attempt(attempt) else { return Err(no_row(after, "start.sql")) };
                let rows = insert_attempt(&mut self.connection.prepare_cached(sql::START)?, after, attempt)?;
                one_row(rows, after, "start.sql")?;
            }
            Some(Touched::Updated(attempt)) => {
                let Some(attempt) = job.attempt(attempt) else { return Err(no_row(after, "write_attempt.sql")) };
                let rows = update_attempt(&mut self.connection.prepare_cached(sql::WRITE_ATTEMPT)?, job.id, attempt)?;
                one_row(rows, after, "write_attempt.sql")?;
            }
        }
        match (&before.job.slot, &job.slot) {
            (Slot::Filled { .. }, _) => {
                let mut statement = self.connection.prepare_cached(sql::TOUCH_JOB)?;
                let rows = statement.execute(params![id(job.id.0), before.job.version, after.updated_at])?;
                one_row(rows, after, "touch_job.sql")
            }
            (_, Slot::Filled { by, result }) => {
                let mut statement = self.connection.prepare_cached(sql::COMPLETE)?;
                let version = before.job.version;
                let rows = statement.execute(params![
                    id(job.id.0),
                    version,
                    job.version,
                    id(by.0),
                    result,
                    after.updated_at
                ])?;
                one_row(rows, after, "complete.sql")
            }
            (
                Slot::Open { .. } | Slot::GivenUp(_) | Slot::Cancelled,
                Slot::Open { .. } | Slot::GivenUp(_) | Slot::Cancelled,
            ) => {
                let rows = update_job(&mut self.connection.prepare_cached(sql::WRITE_JOB)?, &before.job, after)?;
                one_row(rows, after, "write_job.sql")
            }
        }
    }

    fn count(&mut self, record: &Arc<Record>, times: u64, at: Millis) -> Result<Arc<Record>, Fault> {
        if times == 0 {
            return Ok(record.clone());
        }
        if record.duplicates == 0 {
            self.note(&duplicate_notice(record.job.id, at))?;
        }
        let duplicates = record.duplicates.saturating_add(times);
        let counted = Arc::new(Record { duplicates, ..Record::clone(record) });
        let mut statement = self.connection.prepare_cached(sql::COUNT_DUPLICATES)?;
        let stored = i64::try_from(duplicates).unwrap_or(i64::MAX);
        one_row(statement.execute(params![id(record.job.id.0), stored])?, &counted, "count_duplicates.sql")?;
        self.remembered.put(&counted);
        Ok(counted)
    }

    fn fill_in(&mut self, cancelled: &Record, submit: &Submit) -> Result<Arc<Record>, Fault> {
        let filled = Arc::new(submit.filled_in(cancelled));
        let mut statement = self.connection.prepare_cached(sql::FILL_IN)?;
        let intent = &submit.intent;
        let rows = statement.execute(params![
            id(cancelled.job.id.0),
            intent.task,
            intent.provider,
            intent.fingerprint.version,
            intent.fingerprint.digest,
            intent.input,
            filled.metadata,
            filled.priority,
            filled.run_at,
            filled.updated_at,
        ])?;
        one_row(rows, &filled, "fill_in.sql")?;
        Ok(filled)
    }

    pub(super) fn note(&mut self, notice: &StoredNotice) -> Result<(), Fault> {
        let mut statement = self.connection.prepare_cached(sql::NOTICE)?;
        let attempt = notice.attempt.map(|attempt| id(attempt.0));
        let most = i64::try_from(MOST_OF_A_KIND).unwrap_or(i64::MAX);
        statement.execute(params![id(notice.job.0), attempt, notice.at, notice.kind, notice.detail, most])?;
        Ok(())
    }
}

/// A guarded statement writes one row. If it wrote none although the rules allowed the change, the
/// file is not what we believed: nothing of the command may stand.
fn one_row(rows: usize, record: &Record, statement: &str) -> Result<(), Fault> {
    if rows == 1 { Ok(()) } else { Err(no_row(record, statement)) }
}

fn no_row(record: &Record, statement: &str) -> Fault {
    Fault::Refused(format!("the guard of {statement} did not let {} through", job_text(record.job.id)))
}
