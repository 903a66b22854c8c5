//! Random commands, given to the reference store and to another one: every answer and every row must
//! be the same. A seed replays the run.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use fastrand::Rng;
use onejob::intent::Intent;
use onejob::store::{
    AttemptFilter, Certificate, CertificateFilter, Claim, Contracts, JobFilter, Record, Result, Run, Store, StoreError,
    Submit, Suspend, Verification, VerificationId,
};
use onejob_core::{
    AttemptId, AttemptStateName, Candidate, Cause, CertificateId, Effects, Event, Evidence, Failure, FailureClass,
    Follow, JobId, JobState, Millis, NodeId, Plan, Policy, Seen, Slot, Start, Trigger, Usage, What,
};
use serde_json::json;

use super::ground::{all_jobs, payload};

const OWNERS: [&str; 2] = ["ann", "bob"];
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const TASKS: [&str; 2] = ["poster", "mail"];
const PROVIDERS: [&str; 2] = ["main", "backup"];
const NODES: u128 = 3;

/// Few, so that what is named is often there.
const CERTIFICATES: u128 = 9;

/// Answers are compared at every step; all rows, which takes longer, every few.
const EVERY: usize = 5;

/// One command, the same for both stores.
#[derive(Clone, Debug)]
enum Command {
    Submit(Box<Submit>),
    Count(JobId, u64),
    Apply(JobId, Box<Event>),
    CancelByKey(&'static str, &'static str, JobId),
    Claim(Claim),
    Reap(NodeId, usize),
    ListJobs(JobFilter),
    ListAttempts(AttemptFilter),
    UnknownLongest(&'static str, usize),
    QueuedDeadlines(usize),
    JobOfAttempt(AttemptId),
    Begin(Run, Millis),
    End(Run, Box<Verification>, Option<Box<Certificate>>),
    Leave(Run),
    Suspend(Suspend),
    Valid(&'static str),
    Certificates(CertificateFilter),
    PruneCertificates(Millis, usize),
}

/// Runs `steps` random commands on both stores.
pub async fn run(seed: u64, steps: usize, reference: &Store, other: &Store) {
    let mut world = World { rng: Rng::with_seed(seed), ids: 0, now: 1_000, seen: HashMap::new() };
    for step in 0..steps {
        let jobs = reference.list_jobs(all_jobs()).await.unwrap();
        let command = world.command(&jobs);
        let context = format!("seed {seed}, step {step}, {command:?}");
        let (expected, got) = (ask(&command, reference, world.now).await, ask(&command, other, world.now).await);
        assert_eq!(expected, got, "the answers differ: {context}");
        if step % EVERY == 0 || step + 1 == steps {
            compare(reference, other, &context).await;
        }
        world.check(&reference.list_jobs(all_jobs()).await.unwrap(), &context);
    }
}

async fn ask(command: &Command, store: &Store, at: Millis) -> String {
    match command.clone() {
        Command::Submit(submit) => answer(store.submit(*submit).await),
        Command::Count(job, times) => answer(store.count_duplicates(job, times, at).await),
        Command::Apply(job, event) => answer(store.apply(job, *event).await),
        Command::CancelByKey(owner, key, id) => answer(store.cancel_by_key(owner.into(), key.into(), id, at).await),
        Command::Claim(claim) => answer(store.claim(claim).await),
        Command::Reap(alive, limit) => answer(store.reap(alive, at, limit).await),
        Command::ListJobs(filter) => answer(store.list_jobs(filter).await),
        Command::ListAttempts(filter) => answer(store.list_attempts(filter).await),
        Command::UnknownLongest(task, limit) => answer(store.unknown_longest(task.into(), limit).await),
        Command::QueuedDeadlines(limit) => answer(store.queued_deadlines(limit).await),
        Command::JobOfAttempt(attempt) => answer(store.job_of_attempt(attempt).await),
        Command::Begin(run, until) => answer(store.begin_verification(run, at, until).await),
        Command::End(run, verification, certificate) => {
            answer(store.end_verification(run, *verification, certificate.map(|c| *c)).await)
        }
        Command::Leave(run) => answer(store.leave_verification(run).await),
        Command::Suspend(suspend) => answer(store.suspend(suspend).await),
        Command::Valid(task) => answer(store.valid_certificates(task.into(), at).await),
        Command::Certificates(filter) => answer(store.certificates(filter).await),
        Command::PruneCertificates(before, limit) => answer(store.prune_certificates(before, limit).await),
    }
}

/// An answer as text; of an error only its kind, for each store words it in its own way.
fn answer<T: Debug>(answer: Result<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:#?}"),
        Err(StoreError::Unavailable(_)) => "unavailable".into(),
        Err(StoreError::OutcomeUnknown(_)) => "outcome unknown".into(),
        Err(StoreError::Refused(_)) => "refused".into(),
    }
}

/// Compares everything that can be read.
async fn compare(reference: &Store, other: &Store, context: &str) {
    let jobs = reference.list_jobs(all_jobs()).await.unwrap();
    assert_eq!(jobs, other.list_jobs(all_jobs()).await.unwrap(), "the jobs differ: {context}");
    let attempts = AttemptFilter { limit: 100_000, ..AttemptFilter::default() };
    assert_eq!(
        reference.list_attempts(attempts.clone()).await.unwrap(),
        other.list_attempts(attempts).await.unwrap(),
        "the attempts differ: {context}"
    );
    for record in jobs {
        let id = record.job.id;
        assert_eq!(
            reference.notices(id).await.unwrap(),
            other.notices(id).await.unwrap(),
            "the notices differ: {context}"
        );
    }
    let (expected, got) = (reference.awaited_providers().await.unwrap(), other.awaited_providers().await.unwrap());
    assert_eq!(expected, got, "the awaited providers differ: {context}");
    let certificates = CertificateFilter { limit: 100_000, ..CertificateFilter::default() };
    assert_eq!(
        reference.certificates(certificates.clone()).await.unwrap(),
        other.certificates(certificates).await.unwrap(),
        "the certificates differ: {context}"
    );
    assert_eq!(
        reference.verifications().await.unwrap(),
        other.verifications().await.unwrap(),
        "the verifications differ: {context}"
    );
    let (expected, got) = (reference.census().await.unwrap(), other.census().await.unwrap());
    assert_eq!(expected, got, "the census differs: {context}");
}

struct World {
    rng: Rng,
    ids: u128,
    now: Millis,
    seen: HashMap<JobId, Arc<Record>>,
}

impl World {
    fn command(&mut self, jobs: &[Arc<Record>]) -> Command {
        self.now += self.rng.i64(0..20);
        match self.rng.u8(0..112) {
            100.. => self.about_certificates(jobs),
            0..25 => Command::Submit(Box::new(self.submit())),
            25..28 => Command::Count(self.job(jobs), self.rng.u64(0..3)),
            28..72 => {
                let job = self.job(jobs);
                let record = jobs.iter().find(|record| record.job.id == job);
                Command::Apply(job, Box::new(Event { at: self.now, what: self.what(record.map(|r| &**r)) }))
            }
            72..76 => Command::CancelByKey(self.one_of(&OWNERS), self.one_of(&KEYS), JobId(self.id())),
            76..87 => Command::Claim(self.claim()),
            87..90 => Command::Reap(self.node(), self.rng.usize(0..4)),
            90..94 => Command::ListJobs(self.job_filter(jobs)),
            94..97 => Command::ListAttempts(self.attempt_filter(jobs)),
            97 => Command::UnknownLongest(self.one_of(&TASKS), self.rng.usize(0..4)),
            98 => Command::QueuedDeadlines(self.rng.usize(0..4)),
            _ => {
                let job = self.job(jobs);
                let record = jobs.iter().find(|record| record.job.id == job);
                Command::JobOfAttempt(self.attempt(record.map(|r| &**r)))
            }
        }
    }

    fn about_certificates(&mut self, jobs: &[Arc<Record>]) -> Command {
        let run = Run {
            id: VerificationId(self.rng.u128(1..4)),
            task: self.one_of(&TASKS).into(),
            provider: self.one_of(&PROVIDERS).into(),
        };
        match self.rng.u8(0..12) {
            0..3 => Command::Begin(run, self.now + self.rng.i64(0..60)),
            3..7 => self.end(run),
            7 => Command::Leave(run),
            8 => {
                let job = self.job(jobs);
                let record = jobs.iter().find(|record| record.job.id == job);
                let attempt = self.attempt(record.map(|r| &**r));
                Command::Suspend(Suspend {
                    certificate: CertificateId(self.rng.u128(1..CERTIFICATES)),
                    because: "it drifted".into(),
                    about: self.rng.bool().then_some((job, attempt)),
                    at: self.now,
                })
            }
            9 => Command::Valid(self.one_of(&TASKS)),
            10 => Command::Certificates(CertificateFilter {
                task: self.maybe(&TASKS).map(Into::into),
                provider: self.maybe(&PROVIDERS).map(Into::into),
                limit: self.rng.usize(0..6),
            }),
            _ => Command::PruneCertificates(self.now - self.rng.i64(0..200), self.rng.usize(0..3)),
        }
    }

    fn end(&mut self, run: Run) -> Command {
        let passed = self.rng.u8(0..5) > 0;
        let contract_digest = self.digest();
        let certificate = passed.then(|| Certificate {
            id: CertificateId(self.rng.u128(1..CERTIFICATES)),
            task: run.task.clone(),
            provider: run.provider.clone(),
            contract_digest,
            model: self.rng.bool().then(|| "m-1".into()),
            detail: json!({"at": self.now}).to_string().into(),
            issued_at: self.now,
            valid_until: self.now + self.rng.i64(0..400),
            suspended: None,
        });
        let verification = Verification {
            contract_digest,
            started_at: self.now - 3,
            ended_at: self.now,
            passed,
            report: json!({"at": self.now}).to_string().into(),
            certificate: certificate.as_ref().map(|c| c.id),
        };
        Command::End(run, Box::new(verification), certificate.map(Box::new))
    }

    /// Of one of two contracts.
    fn digest(&mut self) -> [u8; 32] {
        [u8::from(self.rng.u8(0..4) == 0); 32]
    }

    fn submit(&mut self) -> Submit {
        let run_at = self.rng.bool().then(|| self.now + self.rng.i64(-10..40));
        let provider = self.one_of(&PROVIDERS);
        let plan = Plan {
            provider: provider.into(),
            primary: self.one_of(&PROVIDERS).into(),
            certificate: self.certificate(),
            due_at: run_at.unwrap_or(self.now),
        };
        let start = (self.rng.u8(0..3) > 0).then(|| Start {
            primary: plan.primary.clone(),
            certificate: plan.certificate,
            ..self.start(provider, Trigger::Plan)
        });
        Submit {
            id: JobId(self.id()),
            owner: self.one_of(&OWNERS).into(),
            idempotency_key: self.one_of(&KEYS).into(),
            intent: Intent::new(self.one_of(&TASKS), &json!({"n": self.rng.u8(0..2)}), None),
            metadata: json!({"step": self.now}).to_string().into(),
            priority: self.rng.i32(-2..3),
            run_at,
            deadline: (self.rng.u8(0..3) == 0).then(|| self.now + self.rng.i64(-5..60)),
            effects: if self.rng.bool() { Effects::Exclusive } else { Effects::Racing },
            plan,
            start,
            at: self.now,
        }
    }

    fn start(&mut self, provider: &'static str, trigger: Trigger) -> Start {
        Start {
            // Now and then the name of an attempt that exists.
            attempt: AttemptId(if self.rng.u8(0..20) == 0 { self.rng.u128(1..2 + self.ids) } else { self.id() }),
            provider: provider.into(),
            primary: self.one_of(&PROVIDERS).into(),
            certificate: self.certificate(),
            trigger,
            node: self.node(),
        }
    }

    fn what(&mut self, record: Option<&Record>) -> What {
        let attempt = self.attempt(record);
        match self.rng.u8(0..35) {
            32.. => What::Unproved { certificate: self.planned(record), follow: self.follow() },
            0..3 => {
                let trigger = match self.rng.u8(0..4) {
                    0 => Trigger::Plan,
                    1 => Trigger::Hedge { seen: record.map_or(0, |r| r.job.attempts.len() as u32) },
                    2 => Trigger::Hand { force: false },
                    _ => Trigger::Hand { force: true },
                };
                let provider = self.one_of(&PROVIDERS);
                What::Start(self.start(provider, trigger))
            }
            3..8 => What::Running { attempt, evidence: self.evidence() },
            8..10 => What::Handle { attempt, handle: self.one_of(&["h-1", "h-2"]).into() },
            10..15 => What::Silent { attempt, cause: self.one_of(&Cause::ALL) },
            15..19 => What::Succeeded {
                attempt,
                result: payload(&json!({"by": self.now}).to_string()),
                seen: self.reported(),
                evidence: self.evidence(),
            },
            19..25 => What::Failed {
                attempt,
                failure: self.failure(),
                seen: self.reported(),
                evidence: self.evidence(),
                follow: self.follow(),
            },
            25..27 => What::Abandoned { attempt, evidence: self.evidence(), follow: self.follow() },
            27 => What::CancelConfirmed { attempt, never_sent: self.rng.bool(), evidence: self.evidence() },
            28 => What::Cancel,
            29 | 30 => What::Reopen { provider: self.one_of(&PROVIDERS).into() },
            _ => What::DeadlinePassed,
        }
    }

    /// What the plan stands on, now and then something else.
    fn planned(&mut self, record: Option<&Record>) -> Option<CertificateId> {
        match record.map(|record| &record.job.slot) {
            Some(Slot::Open { plan: Some(plan) }) if self.rng.u8(0..5) > 0 => plan.certificate,
            Some(_) | None => self.certificate(),
        }
    }

    fn failure(&mut self) -> Failure {
        Failure {
            class: self.one_of(&FailureClass::ALL),
            status: self.rng.bool().then(|| self.rng.u16(400..600)),
            message: "it failed".into(),
            retry_after_ms: self.rng.bool().then(|| self.rng.u64(0..30)),
        }
    }

    fn follow(&mut self) -> Follow {
        let candidates = PROVIDERS.map(|p| Candidate {
            provider: p.into(),
            certificate: self.certificate(),
            refuses: self.rng.u8(0..4) == 0,
        });
        let candidates = candidates.into();
        let policy = Policy { candidates, tries: self.rng.u32(1..4), max_attempts: self.rng.u32(1..6), backoff_ms: 8 };
        Follow { policy: Arc::new(policy), jitter: self.rng.u16(0..1001) }
    }

    fn reported(&mut self) -> Seen {
        let usage = self.rng.bool().then(|| Usage {
            input_tokens: Some(self.rng.u64(0..1_000)),
            output_tokens: self.rng.bool().then(|| self.rng.u64(0..1_000)),
        });
        Seen { model: self.rng.bool().then(|| "m-1".into()), usage }
    }

    fn evidence(&mut self) -> Evidence {
        match self.rng.u8(0..10) {
            0..4 => Evidence::Answer,
            4 => Evidence::Lookup,
            5 => Evidence::Callback,
            6 => Evidence::Replay,
            7 | 8 => Evidence::Operator { reason: "asked".into() },
            _ => Evidence::Policy { reason: "declared".into() },
        }
    }

    fn claim(&mut self) -> Claim {
        Claim {
            provider: self.one_of(&PROVIDERS).into(),
            attempts: (0..self.rng.usize(0..4)).map(|_| AttemptId(self.id())).collect(),
            node: self.node(),
            contracts: Arc::new(self.contracts()),
            at: self.now,
        }
    }

    fn job_filter(&mut self, jobs: &[Arc<Record>]) -> JobFilter {
        JobFilter {
            owner: self.maybe(&OWNERS).map(Into::into),
            idempotency_key: if self.rng.u8(0..4) == 0 { self.maybe(&KEYS).map(Into::into) } else { None },
            task: self.maybe(&TASKS).map(Into::into),
            state: self.maybe(&JobState::ALL),
            before: self.rng.bool().then(|| self.job(jobs)),
            limit: self.rng.usize(0..6),
        }
    }

    fn attempt_filter(&mut self, jobs: &[Arc<Record>]) -> AttemptFilter {
        let job = self.job(jobs);
        let record = jobs.iter().find(|record| record.job.id == job);
        AttemptFilter {
            owner: self.maybe(&OWNERS).map(Into::into),
            task: self.maybe(&TASKS).map(Into::into),
            provider: self.maybe(&PROVIDERS).map(Into::into),
            state: self.maybe(&AttemptStateName::ALL),
            before: self.rng.bool().then(|| self.attempt(record.map(|r| &**r))),
            limit: self.rng.usize(0..6),
        }
    }

    /// A job, mostly one of the youngest; now and then none.
    fn job(&mut self, jobs: &[Arc<Record>]) -> JobId {
        match self.rng.u8(0..20) {
            0 => JobId(self.rng.u128(1..10_000)),
            _ => jobs.get(self.rng.usize(0..jobs.len().clamp(1, 12))).map_or(JobId(1), |record| record.job.id),
        }
    }

    /// An attempt of the job, mostly the last; now and then none.
    fn attempt(&mut self, record: Option<&Record>) -> AttemptId {
        let attempts = record.map_or(&[][..], |record| &record.job.attempts);
        match (attempts.last(), self.rng.u8(0..20)) {
            (None, _) | (_, 0) => AttemptId(self.rng.u128(1..10_000)),
            (Some(_), 1..6) => attempts[self.rng.usize(0..attempts.len())].id,
            (Some(last), _) => last.id,
        }
    }

    fn node(&mut self) -> NodeId {
        NodeId(self.rng.u128(0..NODES))
    }

    fn certificate(&mut self) -> Option<CertificateId> {
        self.rng.bool().then(|| CertificateId(self.rng.u128(1..CERTIFICATES)))
    }

    fn contracts(&mut self) -> Contracts {
        TASKS.into_iter().map(|task| (task.into(), self.digest())).collect()
    }

    fn id(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(0..all.len())]
    }

    fn maybe<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        self.rng.bool().then(|| self.one_of(all))
    }

    /// What must hold of every job whatever `decide` says: both stores may err together.
    fn check(&mut self, jobs: &[Arc<Record>], context: &str) {
        for after in jobs {
            assert_eq!(after.job.unsound(), None, "{context}: {after:?}");
            let Some(before) = self.seen.insert(after.job.id, after.clone()) else { continue };
            assert!(after.job.version >= before.job.version, "a version fell: {context}");
            assert!(after.duplicates >= before.duplicates, "a count fell: {context}");
            if let Slot::Filled { .. } = before.job.slot {
                assert_eq!(before.job.slot, after.job.slot, "R6: {context}");
            }
            if before.intent.is_some() {
                assert_eq!(before.intent, after.intent, "R3: {context}");
            }
            for (old, new) in before.job.attempts.iter().zip(&after.job.attempts) {
                assert!(old == new || old.state.is_open(), "R8: {context}");
                assert_eq!((old.id, old.version_read), (new.id, new.version_read), "{context}");
            }
            assert!(after.job.attempts.len() >= before.job.attempts.len(), "an attempt is gone: {context}");
        }
        assert_eq!(jobs.len(), self.seen.len(), "a job is gone: {context}");
    }
}
