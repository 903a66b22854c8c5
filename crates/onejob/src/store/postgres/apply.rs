//! Commands to jobs that are there: events, duplicates, cancels by key. Those that arrived together are
//! one transaction; a job with several of them takes one in each wave.
//!
//! What this node remembers of a job is decided upon without a read: the guards of what is written then
//! look at the row's revision. If they find no row, or if there is nothing to write, the job's row is
//! held and read and the decision is made on that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onejob_core::{Event, JobId, Start, Verdict, What};

use super::certificates::Held;
use super::columns::{Known, at, bind_ids, id, id_at, read_jobs, read_tombstone, text_at};
use super::command::{Command, Key, Outcome, mixed_up};
use super::decided::{Decided, decided};
use super::fault::Fault;
use super::lane::{RETRIES, parts, step_aside};
use super::link::{Call, First, Link, Links, column};
use super::resolve::resolve;
use super::wave::{Counting, Placed, Wave, as_counted};
use super::write::{Kind, Planned, stopped_by_a_guard, write};
use super::{Shared, sql};
use crate::store::certificates::stands_on;
use crate::store::notice::{conflict_notice, duplicate_notice};
use crate::store::{Record, StoreError, Submit, Tombstone};

/// Works through a batch and answers every command.
pub(super) async fn work(shared: &Arc<Shared>, batch: Vec<Command>) {
    let counted = batch.iter().filter(|command| command.key().is_none()).count();
    shared.counters.commands(counted);
    let mut waiting = vec![batch];
    while let Some(mut part) = waiting.pop() {
        match settle(shared, &shared.lanes, &part).await {
            Settled::Done(outcomes) => answer(part, outcomes),
            Settled::Split => waiting.extend(parts(part)),
            Settled::Held => part.drain(..).for_each(|command| work_alone(shared, command)),
        }
    }
}

fn answer(commands: Vec<Command>, outcomes: Vec<Outcome>) {
    commands.into_iter().zip(outcomes).for_each(|(command, outcome)| command.answer(outcome));
}

/// Somebody else's transaction holds this job and is not at its end: the command waits for it, and nobody
/// waits with it.
fn work_alone(shared: &Arc<Shared>, command: Command) {
    let Some(place) = shared.waiting.enter() else {
        let why = StoreError::Unavailable("too many wait for jobs that others hold".into());
        return command.answer(Outcome::Failed(why));
    };
    let shared = shared.clone();
    tokio::spawn(async move {
        let _place = place;
        let command = vec![command];
        let outcomes = match settle(&shared, &shared.alone, &command).await {
            Settled::Done(outcomes) => outcomes,
            Settled::Split | Settled::Held => {
                vec![Outcome::Failed(Fault::Held("its end did not come in time".into()).into())]
            }
        };
        answer(command, outcomes);
    });
}

enum Settled {
    /// After the commit, or after it failed: what became of each.
    Done(Vec<Outcome>),
    /// One of several fails, or waits, and nobody knows which.
    Split,
    /// Somebody else holds the job of the only one.
    Held,
}

async fn settle(shared: &Shared, links: &Links, batch: &[Command]) -> Settled {
    let (mut must_read, mut tries, mut was_away) = (HashSet::new(), 0, false);
    let fault = loop {
        let fault = match attempt(shared, links, batch, &must_read).await {
            Ok(mut done) => match done.lost.take() {
                None => return Settled::Done(committed(shared, done)),
                Some(why) => match resolve(shared, &done.written).await {
                    Some(true) => return Settled::Done(committed(shared, done)),
                    Some(false) => {
                        must_read.extend(done.written.iter().map(|planned| planned.after.job.id));
                        Fault::Retry(why)
                    }
                    None => break Fault::Ambiguous(why),
                },
            },
            Err(fault) => fault,
        };
        match fault {
            // Each job at most once: what was read is held.
            Fault::Stale(jobs) if jobs.iter().any(|job| !must_read.contains(job)) => {
                shared.forget(&jobs);
                must_read.extend(jobs);
            }
            Fault::Retry(_) if tries < RETRIES => {
                tries += 1;
                step_aside(tries).await;
            }
            // An idle connection may have died unseen.
            Fault::Away(_) if !was_away => was_away = true,
            Fault::Row(_) | Fault::NoLease | Fault::Held(_) if batch.len() > 1 => return Settled::Split,
            Fault::Held(_) => return Settled::Held,
            Fault::Row(_)
            | Fault::NoLease
            | Fault::Stale(_)
            | Fault::Retry(_)
            | Fault::Away(_)
            | Fault::Ambiguous(_) => break fault,
        }
    };
    let error = StoreError::from(fault);
    match &error {
        StoreError::Refused(why) => {
            tracing::error!(error = %why, "the store refused a command that the rules allow");
        }
        away @ (StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_)) => {
            tracing::warn!(error = %away, commands = batch.len(), "the store could not commit");
        }
    }
    Settled::Done(batch.iter().map(|_| Outcome::Failed(error.clone())).collect())
}

fn committed(shared: &Shared, done: Tried) -> Vec<Outcome> {
    shared.remember(done.known.into_values());
    let written: Vec<Arc<Record>> = done.written.into_iter().map(|planned| planned.after).collect();
    shared.tell(&written);
    done.outcomes
}

/// A transaction that was committed, or whose end is not known.
struct Tried {
    outcomes: Vec<Outcome>,
    /// Every change, in order.
    written: Vec<Planned>,
    /// The jobs as they are now.
    known: HashMap<JobId, Known>,
    /// Why it is not known whether it was committed.
    lost: Option<String>,
}

async fn attempt(
    shared: &Shared,
    links: &Links,
    batch: &[Command],
    must_read: &HashSet<JobId>,
) -> std::result::Result<Tried, Fault> {
    let mut session = Session { shared, link: links.get().await?, first: First::Begin, held: HashSet::new() };
    match session.run(batch, must_read).await {
        Ok(mut done) => {
            if session.first == First::GoOn {
                match session.link.commit().await {
                    Ok(()) => shared.counters.commit(),
                    Err(Fault::Ambiguous(why)) => done.lost = Some(why),
                    Err(fault) => return Err(fault),
                }
            }
            Ok(done)
        }
        Err(fault) => {
            if matches!(fault, Fault::Row(_) | Fault::Stale(_) | Fault::NoLease | Fault::Held(_)) {
                session.link.roll_back().await;
            }
            Err(fault)
        }
    }
}

/// One transaction.
struct Session<'a> {
    shared: &'a Shared,
    link: Link<'a>,
    first: First,
    /// The jobs whose rows this transaction holds and has read.
    held: HashSet<JobId>,
}

/// What is known of the jobs of a batch.
#[derive(Default)]
struct Jobs {
    of_key: HashMap<Key, JobId>,
    tombstones: HashMap<Key, Tombstone>,
    known: HashMap<JobId, Known>,
    damaged: HashMap<JobId, String>,
    /// What the starts of the batch stand on.
    certificates: Held,
}

impl Session<'_> {
    async fn run(&mut self, batch: &[Command], must_read: &HashSet<JobId>) -> std::result::Result<Tried, Fault> {
        let mut jobs = self.find(batch, must_read).await?;
        let mut outcomes: Vec<Option<Outcome>> = batch.iter().map(|_| None).collect();
        let mut written = Vec::new();
        let mut waiting: Vec<usize> = (0..batch.len()).collect();
        while !waiting.is_empty() {
            let mut wave = Wave::default();
            let (mut next, mut stale) = (Vec::new(), Vec::new());
            for index in waiting {
                match self.place(&batch[index], index, &jobs, &mut wave) {
                    Ok(Placed::Answered(outcome)) => outcomes[index] = Some(outcome),
                    Ok(Placed::InThisWave) => {}
                    Ok(Placed::InTheNext) => next.push(index),
                    // All of them at once: the batch begins anew for them.
                    Err(Fault::Stale(jobs)) => stale.extend(jobs),
                    Err(fault) => return Err(fault),
                }
            }
            if !stale.is_empty() {
                return Err(Fault::Stale(stale));
            }
            waiting = next;
            written.extend(self.carry_out(batch, wave, &mut jobs, &mut outcomes).await?);
        }
        let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Failed(mixed_up()))).collect();
        Ok(Tried { outcomes, written, known: jobs.known, lost: None })
    }

    /// Everything that is to be known before the first decision.
    async fn find(&mut self, batch: &[Command], must_read: &HashSet<JobId>) -> std::result::Result<Jobs, Fault> {
        let mut jobs = Jobs::default();
        let keys: Vec<Key> = batch.iter().filter_map(Command::key).collect::<BTreeSet<_>>().into_iter().collect();
        if !keys.is_empty() {
            let bound = || vec![column(&keys, |(owner, _)| &**owner), column(&keys, |(_, key)| &**key)];
            let calls = [Call::new(&sql::JOB_BY_KEY, bound()), Call::new(&sql::TOMBSTONE, bound())];
            let answers = self.send(&calls).await?;
            for row in &answers[0] {
                jobs.of_key.insert((text_at(row, 0)?, text_at(row, 1)?), JobId(id_at(row, 2)?));
            }
            for row in &answers[1] {
                jobs.tombstones.insert((text_at(row, 0)?, text_at(row, 1)?), read_tombstone(row)?);
            }
        }
        let named: BTreeSet<JobId> =
            batch.iter().filter_map(Command::job).chain(jobs.of_key.values().copied()).collect();
        for known in self.shared.recall(named.iter().filter(|job| !must_read.contains(job))) {
            jobs.known.insert(known.record.job.id, known);
        }
        let unknown: Vec<JobId> = named.iter().filter(|job| !jobs.known.contains_key(job)).copied().collect();
        if !unknown.is_empty() {
            // All rows, in order: what is remembered will be written too.
            let named: Vec<JobId> = named.into_iter().collect();
            let calls = [
                Call::new(&sql::LOCK, bind_ids(&named)),
                // After the lock: it sees what whoever held the rows has left.
                Call::new(&sql::JOB_BY_ID, bind_ids(&unknown)),
            ];
            let answers = self.send(&calls).await?;
            for (job, read) in read_jobs(&answers[1])? {
                match read {
                    Ok(known) => drop(jobs.known.insert(job, known)),
                    Err(Fault::Row(why)) => drop(jobs.damaged.insert(job, why)),
                    Err(fault) => return Err(fault),
                }
            }
            self.held.extend(unknown.iter().copied());
        }
        // After the jobs, as everywhere: nobody waits in a circle.
        let starts: Vec<&Start> = batch.iter().filter_map(Command::start).collect();
        if starts.iter().any(|start| stands_on(start).is_some()) {
            jobs.certificates = Held::of(&mut self.link, self.first, starts.into_iter()).await?;
            self.first = First::GoOn;
        }
        Ok(jobs)
    }

    /// Decides a command, or leaves it to the next wave.
    fn place(
        &self,
        command: &Command,
        index: usize,
        jobs: &Jobs,
        wave: &mut Wave,
    ) -> std::result::Result<Placed, Fault> {
        let key = command.key();
        let job = command.job().or_else(|| jobs.of_key.get(key.as_ref()?).copied());
        let tombstone = key.as_ref().and_then(|key| jobs.tombstones.get(key));
        let Some(job) = job else {
            return Ok(Placed::Answered(match tombstone {
                Some(tombstone) => Outcome::Expired(*tombstone),
                None => Outcome::Failed(StoreError::Refused("a key is taken and no job has it".into())),
            }));
        };
        if let Some(why) = jobs.damaged.get(&job) {
            return Ok(Placed::Answered(Outcome::Failed(StoreError::Refused(why.clone()))));
        }
        let Some(known) = jobs.known.get(&job) else {
            return match key {
                None => Ok(Placed::Answered(Outcome::NoSuchJob)),
                // The key was found, and its job was pruned before the row was held: now there is a tombstone.
                Some(_) => Err(Fault::Retry("a job went away while it was looked for".into())),
            };
        };
        if wave.busy.contains(&job) {
            return Ok(Placed::InTheNext);
        }
        let event = match command {
            Command::Apply { event, .. } => jobs.certificates.proved(&known.record, event),
            Command::CancelKey { new_id, .. } if *new_id == job => {
                return self.sure(known, Outcome::Ours(known.record.clone()));
            }
            Command::CancelKey { at, .. } => Event { at: *at, what: What::Cancel },
            Command::Count { times: 0, .. } => return self.sure(known, Outcome::Counted(known.record.clone())),
            Command::Count { times, at, .. } => return Ok(wave.count(job, index, *times, *at)),
            Command::Meet { submit, .. } => return self.meet(submit, index, known, wave),
        };
        if wave.counts.contains_key(&job) {
            return Ok(Placed::InTheNext);
        }
        match decided(known, &event, self.shared.options.hold.as_ref()) {
            Decided::Refused(why) => self.sure(known, Outcome::Refused { record: known.record.clone(), why }),
            Decided::Nothing(verdict) => self.sure(known, Outcome::Done { record: known.record.clone(), verdict }),
            Decided::Write(planned, _) if planned.kind == Kind::OnlyNotices && !self.is_held(job) => {
                Err(Fault::Stale(vec![job]))
            }
            Decided::Write(planned, verdict) => {
                wave.busy.insert(job);
                wave.planned.push(planned);
                wave.changes.push((index, verdict));
                Ok(Placed::InThisWave)
            }
        }
    }

    /// A post met the job that has its key.
    fn meet(
        &self,
        submit: &Submit,
        index: usize,
        known: &Known,
        wave: &mut Wave,
    ) -> std::result::Result<Placed, Fault> {
        let job = known.record.job.id;
        if job == submit.id {
            return self.sure(known, Outcome::Ours(known.record.clone()));
        }
        let (before, notices, kind) = match &known.record.intent {
            Some(intent) if intent.fingerprint == submit.intent.fingerprint => {
                return Ok(wave.count(job, index, 1, submit.at));
            }
            Some(_) if !self.is_held(job) => return Err(Fault::Stale(vec![job])),
            Some(_) => (known.record.clone(), vec![conflict_notice(job, &submit.intent, submit.at)], Kind::OnlyNotices),
            None if !self.is_held(job) => return Err(Fault::Stale(vec![job])),
            None => (Arc::new(submit.filled_in(&known.record)), Vec::new(), Kind::FillIn),
        };
        if wave.counts.contains_key(&job) {
            return Ok(Placed::InTheNext);
        }
        wave.busy.insert(job);
        wave.planned.push(Planned { before: known.clone(), after: before, kind, notices });
        wave.changes.push((index, Verdict::AlreadySo));
        Ok(Placed::InThisWave)
    }

    /// An answer without a write stands only on rows that are held: memory may be old.
    fn sure(&self, known: &Known, outcome: Outcome) -> std::result::Result<Placed, Fault> {
        let job = known.record.job.id;
        if self.is_held(job) { Ok(Placed::Answered(outcome)) } else { Err(Fault::Stale(vec![job])) }
    }

    fn is_held(&self, job: JobId) -> bool {
        self.held.contains(&job)
    }

    async fn carry_out(
        &mut self,
        batch: &[Command],
        wave: Wave,
        jobs: &mut Jobs,
        outcomes: &mut [Option<Outcome>],
    ) -> std::result::Result<Vec<Planned>, Fault> {
        self.count(&wave, jobs, outcomes).await?;
        if wave.planned.is_empty() {
            return Ok(Vec::new());
        }
        let planned: Vec<&Planned> = wave.planned.iter().collect();
        let written = write(&mut self.link, self.first, &planned, self.shared.node()).await;
        let duplicates = written.map_err(|fault| match fault {
            Fault::Stale(stale) if stale.iter().all(|job| self.held.contains(job)) => stopped_by_a_guard(&stale),
            other => other,
        })?;
        self.first = First::GoOn;
        let mut done = Vec::with_capacity(wave.planned.len());
        for (mut planned, (index, verdict)) in wave.planned.into_iter().zip(wave.changes) {
            planned.after = as_counted(planned.after, &duplicates);
            let record = planned.after.clone();
            if planned.kind != Kind::OnlyNotices {
                let known = Known { record: record.clone(), revision: planned.before.revision + 1 };
                // Written by this transaction: nobody else has a say until it ends.
                self.held.insert(record.job.id);
                jobs.known.insert(record.job.id, known);
            }
            outcomes[index] = Some(match (&batch[index], planned.kind) {
                (Command::Meet { .. }, Kind::FillIn) => Outcome::Counted(record),
                (Command::Meet { .. }, Kind::OnlyNotices | Kind::Change(_)) => Outcome::OtherIntent(record),
                (Command::Apply { .. } | Command::Count { .. } | Command::CancelKey { .. }, _) => {
                    Outcome::Done { record, verdict }
                }
            });
            done.push(planned);
        }
        Ok(done)
    }

    /// Counts the duplicates of a wave: one row each, however many came.
    async fn count(
        &mut self,
        wave: &Wave,
        jobs: &mut Jobs,
        outcomes: &mut [Option<Outcome>],
    ) -> std::result::Result<(), Fault> {
        if wave.counts.is_empty() {
            return Ok(());
        }
        let mut counts: Vec<(JobId, &Counting)> = wave.counts.iter().map(|(job, counting)| (*job, counting)).collect();
        counts.sort_by_key(|(job, _)| *job);
        let bound = vec![column(&counts, |(job, _)| id(job.0)), column(&counts, |(_, counting)| counting.times)];
        let answers = self.send(&[Call::new(&sql::COUNT_DUPLICATES, bound)]).await?;
        let mut stale = Vec::new();
        let mut firsts = Vec::new();
        let mut rows: HashMap<JobId, (i64, i64)> = HashMap::new();
        for row in &answers[0] {
            rows.insert(JobId(id_at(row, 0)?), (at(row, 1)?, at(row, 2)?));
        }
        for (job, counting) in counts {
            let known = jobs.known.get(&job).cloned();
            let (Some((total, revision)), Some(known)) = (rows.get(&job), known) else {
                stale.push(job);
                continue;
            };
            if *revision != known.revision {
                stale.push(job);
                continue;
            }
            // The statement holds the row, and the row is as it was known.
            self.held.insert(job);
            let mut count = total - counting.times;
            if count == 0 {
                firsts.push(duplicate_notice(job, counting.at));
            }
            for (index, times) in &counting.of {
                count += times;
                let duplicates = count.unsigned_abs();
                let record = Arc::new(Record { duplicates, ..Record::clone(&known.record) });
                jobs.known.insert(job, Known { record: record.clone(), revision: *revision });
                outcomes[*index] = Some(Outcome::Counted(record));
            }
        }
        if !stale.is_empty() {
            return Err(Fault::Stale(stale));
        }
        if !firsts.is_empty() {
            self.send(&[Call::new(&sql::NOTICE, super::columns::bind_notices(&firsts))]).await?;
        }
        Ok(())
    }

    async fn send(&mut self, calls: &[Call<'_>]) -> std::result::Result<Vec<Vec<tokio_postgres::Row>>, Fault> {
        let answers = self.link.run(self.first, calls).await?;
        self.first = First::GoOn;
        Ok(answers)
    }
}
