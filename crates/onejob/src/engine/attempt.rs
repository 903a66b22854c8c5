//! The life of one attempt on this node: render, send, watch the clock, and bring what came of it to
//! the store. Silence becomes `unknown` at the deadline; the connection is kept, for the late answer
//! is the best evidence there is.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onejob_core::{
    AttemptId, AttemptState, Cause, Event, Evidence, Failure, FailureClass, JobId, JobState, Meaning, NodeId,
    Observation, Phase, Seen, Text, Verdict, What, meaning_of,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::hedge::{self, Hedging};
use super::lane::{Lane, Slot};
use super::member::Member;
use super::metrics::{self, AttemptProvider};
use super::{Inner, Stage, payload, submit};
use crate::config::Task;
use crate::id;
use crate::provider::{Answer, CallInput, Prepared, Progress};
use crate::store::{Applied, Record, StoreError};

/// A call that has lasted this long is recorded as running; a quicker one costs no commit for it.
const RUNNING_AFTER: Duration = Duration::from_secs(1);

/// Between two tries to bring a finished attempt to a store that is away: doubles from the first to
/// the second.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Why a call was not made although its attempt is recorded.
const LEASE_RAN_OUT: &str = "this node could not renew its lease before there was a connection";

/// One attempt in the hands of this node.
struct Runner {
    inner: Arc<Inner>,
    lane: Arc<Lane>,
    slot: Slot,
    record: Arc<Record>,
    attempt: AttemptId,
    /// The boot id under which the attempt was recorded: only its lease lets us send.
    recorded_by: NodeId,
    started: Instant,
    hedging: Option<Hedging>,
}

/// How a call ended.
enum End {
    Answered(Answer),
    /// It was dropped before a byte was sent, for this reason.
    NeverSent(&'static str),
    /// `linger` passed after the deadline, or the node stops.
    GivenUp,
}

/// Follows the last attempt of `record`, which has just been recorded as starting, to its end.
pub(crate) fn spawn(inner: &Arc<Inner>, lane: &Arc<Lane>, slot: Slot, record: Arc<Record>) {
    if let Some(runner) = Runner::of_last(inner, lane, slot, record) {
        inner.metrics.attempt(&lane.name, "started");
        // Not awaited here: the slot that it holds is what `Engine::run` waits for.
        tokio::spawn(Box::pin(runner.run()));
    }
}

/// As [`spawn`], with a fault in the middle.
#[cfg(test)]
pub(super) fn spawn_and_break(
    inner: &Arc<Inner>,
    lane: &Arc<Lane>,
    slot: Slot,
    record: Arc<Record>,
) -> tokio::task::JoinHandle<()> {
    let runner = Runner::of_last(inner, lane, slot, record);
    tokio::spawn(async move {
        let _runner = runner;
        panic!("on purpose");
    })
}

/// The store did not say whether it recorded these attempts as starting, and nobody will send them:
/// if they are there, they certainly were not sent, and their jobs go on.
pub(crate) fn disown(inner: &Arc<Inner>, attempts: Vec<AttemptId>) {
    let inner = inner.clone();
    tokio::spawn(async move {
        for attempt in attempts {
            insist(&inner, attempt, || disown_one(&inner, attempt)).await;
        }
    });
}

/// Brings a word about an attempt that nobody follows to the store, however long that is away. Gives up
/// when the node stops: the next start finds the attempt open and of a dead node.
async fn insist<F>(inner: &Inner, attempt: AttemptId, bring: impl Fn() -> F)
where
    F: Future<Output = Result<(), StoreError>>,
{
    let mut stage = inner.stage.subscribe();
    let mut pause = STORE_RETRY.0;
    while let Err(away) = bring().await {
        inner.metrics.store_errors.inc();
        warn!(attempt = id::attempt_text(attempt), error = %away, "the store is away: an attempt that nobody follows may be open in it");
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(STORE_RETRY.1),
            () = stopping(&mut stage) => return,
        }
    }
}

async fn disown_one(inner: &Arc<Inner>, attempt: AttemptId) -> Result<(), StoreError> {
    let Some(record) = inner.store.job_of_attempt(attempt).await? else { return Ok(()) };
    let starting = record.job.attempt(attempt).is_some_and(|a| a.state == AttemptState::Starting);
    if !starting {
        return Ok(());
    }
    let message = "the store did not say that the attempt was recorded, so it was not sent".into();
    let failure = Failure { message, ..Failure::from(FailureClass::NotSent) };
    let left = record.job.attempt(attempt).map(|attempt| attempt.provider.clone());
    let follow = inner.follow(&record, left.as_deref()).await?;
    let (seen, evidence) = (Seen::default(), Evidence::Answer);
    let what = What::Failed { attempt, failure, seen, evidence, follow };
    let applied = inner.store.apply(record.job.id, Event { at: inner.now(), what }).await?;
    let (job, attempt) = names(record.job.id, attempt);
    warn!(%job, %attempt, owner = %record.owner, "the attempt was recorded although the store did not say so: disowned, for it was not sent");
    inner.observe(&applied);
    Ok(())
}

impl Drop for Runner {
    /// A panic leaves nobody to follow the attempt: it would block its job until the next start, and no
    /// operator could end it, for a decree is about what is unknown.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (inner, job, attempt) = (self.inner.clone(), self.record.job.id, self.attempt);
        let (job_text, attempt_text) = self.names();
        error!(job = job_text, attempt = attempt_text, owner = %self.record.owner, provider = %self.lane.name, "a fault of ours broke an attempt off");
        tokio::spawn(async move {
            insist(&inner, attempt, || async {
                let what = What::Silent { attempt, cause: Cause::NodeDied };
                let applied = inner.store.apply(job, Event { at: inner.now(), what }).await?;
                inner.observe(&applied);
                Ok(())
            })
            .await;
        });
    }
}

impl Runner {
    fn of_last(inner: &Arc<Inner>, lane: &Arc<Lane>, slot: Slot, record: Arc<Record>) -> Option<Runner> {
        let last = record.job.attempts.last()?;
        let (attempt, recorded_by, started) = (last.id, last.node, Instant::now());
        let (inner, lane, hedging) = (inner.clone(), lane.clone(), None);
        Some(Runner { inner, lane, slot, record, attempt, recorded_by, started, hedging })
    }

    async fn run(mut self) {
        let inner = self.inner.clone();
        let Some(task) = inner.task_of(&self.record).cloned() else {
            return self.fail(FailureClass::Invalid, "the task of this job is not configured any more").await;
        };
        let deadline = self.deadline(&task);
        let lane = self.lane.clone();
        let request = match lane.provider.prepare(&self.call(&task)) {
            Ok(request) => request,
            Err(failure) => return self.settle_failed(failure, Seen::default()).await,
        };
        if !inner.member.may_send(self.recorded_by) {
            return self.fail(FailureClass::NotSent, LEASE_RAN_OUT).await;
        }
        let end = self.call_and_watch(&lane, &task, request, deadline).await;
        self.inner
            .metrics
            .attempt_seconds
            .get_or_create(&AttemptProvider { provider: lane.name.to_string() })
            .observe(self.started.elapsed().as_secs_f64());
        match end {
            End::Answered(answer) => self.settle(&task, answer, deadline).await,
            End::NeverSent(why) => self.fail(FailureClass::NotSent, why).await,
            End::GivenUp => {}
        }
    }

    fn call(&self, task: &Task) -> CallInput {
        let record = &self.record;
        CallInput {
            job: record.job.id,
            owner: record.owner.clone(),
            task: task.name.clone(),
            attempt: self.attempt,
            number: record.job.attempts.len() as u32,
            input: submit::input_of(record),
            chat: task.chat.clone(),
            callback_url: format!(
                "{}/v1/callbacks/{}",
                self.inner.config.server.public_url,
                id::attempt_text(self.attempt)
            ),
        }
    }

    /// When silence becomes unknown: after the task's time, or at the job's own deadline. Asked once, at
    /// the start, when both clocks agree.
    fn deadline(&self, task: &Task) -> Instant {
        let until_job_deadline =
            self.record.job.deadline.map(|at| Duration::from_millis((at - self.inner.now()).max(0) as u64));
        self.started + until_job_deadline.map_or(task.attempt_timeout, |left| left.min(task.attempt_timeout))
    }

    async fn call_and_watch(&mut self, lane: &Lane, task: &Task, request: Prepared, deadline: Instant) -> End {
        let inner = self.inner.clone();
        let progress = Progress::new();
        let mut call = pin!(lane.provider.send(request, &progress));
        let mut stage = self.inner.stage.subscribe();
        // A task that hedges sooner needs to be known as running sooner.
        let running_after = task.hedge_after.map_or(RUNNING_AFTER, |hedge| hedge.min(RUNNING_AFTER));
        let mut look = self.started + running_after;
        let mut recorded_running = false;
        loop {
            tokio::select! {
                biased;
                // Asked before the call may go on: a node that was paused past its lease sends nothing.
                () = fenced(&inner.member, self.recorded_by, &progress) => return End::NeverSent(LEASE_RAN_OUT),
                answer = &mut call => return End::Answered(answer),
                () = stopping(&mut stage) => {
                    if progress.phase() == Phase::BeforeConnect {
                        return End::NeverSent("this node stopped before there was a connection");
                    }
                    self.fall_silent(Cause::NodeDied, "this node stopped before the answer came").await;
                    return End::GivenUp;
                }
                () = tokio::time::sleep_until(deadline) => break,
                () = tokio::time::sleep_until(look), if !recorded_running => {
                    look += running_after;
                    // Still connecting, or still sending: not with the provider yet.
                    if matches!(progress.phase(), Phase::AwaitingHeaders | Phase::InBody) {
                        recorded_running = true;
                        self.tell(What::Running { attempt: self.attempt, evidence: Evidence::Answer }).await;
                        self.hedging = hedge::watch_over(&inner, &self.record, self.attempt, self.started);
                    }
                }
            }
        }
        match meaning_of(&Observation::DeadlinePassed { phase: progress.phase() }, &[]) {
            Meaning::Failed(class) => {
                End::Answered(Answer::failed(class, "no connection before the attempt's deadline"))
            }
            Meaning::Unknown(cause) => {
                self.fall_silent(cause, "no answer before the deadline").await;
                self.slot.linger(lane);
                tokio::select! {
                    biased;
                    answer = &mut call => End::Answered(answer),
                    () = stopping(&mut stage) => End::GivenUp,
                    () = tokio::time::sleep_until(deadline + task.linger) => End::GivenUp,
                }
            }
        }
    }

    async fn settle(mut self, task: &Task, answer: Answer, deadline: Instant) {
        self.learn(&answer);
        match answer {
            Answer::Done { output, seen } => match submit::accepted(&task.output, &self.record, output) {
                Ok(output) => {
                    // The work is done and may win; nothing more is sent there.
                    if let Some(drift) = self.inner.drift(task, &self.lane.name, || self.call(task), &seen) {
                        self.take_back(task, &drift).await;
                    }
                    let result = payload(&output);
                    self.tell(What::Succeeded { attempt: self.attempt, result, seen, evidence: Evidence::Answer })
                        .await;
                }
                Err(violation) => {
                    let message =
                        format!("the answer breaks the task's contract at {:?}: {violation}", violation.pointer);
                    let failure = Failure { message: message.into(), ..Failure::from(FailureClass::BrokenContract) };
                    self.take_back(task, &failure.message).await;
                    self.settle_failed(failure, seen).await;
                }
            },
            Answer::Accepted { handle, seen: _ } => {
                self.tell(What::Handle { attempt: self.attempt, handle }).await;
                self.hedging = hedge::watch_over(&self.inner, &self.record, self.attempt, self.started);
                self.await_in_background(deadline).await;
            }
            Answer::Broken { meaning: Meaning::Failed(class), status, retry_after_ms, message, seen, .. } => {
                if class == FailureClass::BrokenContract {
                    self.take_back(task, &message).await;
                }
                self.settle_failed(Failure { class, status, message, retry_after_ms }, seen).await;
            }
            Answer::Broken { meaning: Meaning::Unknown(cause), status, message, .. } => {
                let status = status.map_or_else(String::new, |s| format!("status {s}: "));
                self.fall_silent(cause, &format!("{status}{message}")).await;
            }
        }
    }

    /// The provider works under a handle: at the deadline, silence is unknown here too.
    async fn await_in_background(&mut self, deadline: Instant) {
        let mut stage = self.inner.stage.subscribe();
        tokio::select! {
            () = stopping(&mut stage) => {}
            () = tokio::time::sleep_until(deadline) => {
                self.fall_silent(Cause::Timeout, "no word about the background work before the deadline").await;
            }
        }
    }

    async fn fail(mut self, class: FailureClass, message: &str) {
        let failure = Failure { message: message.into(), ..Failure::from(class) };
        self.settle_failed(failure, Seen::default()).await;
    }

    async fn settle_failed(&mut self, failure: Failure, seen: Seen) {
        let (inner, record, lane) = (self.inner.clone(), self.record.clone(), self.lane.clone());
        let Some(follow) = self.patiently(|| inner.follow(&record, Some(&lane.name))).await else { return };
        self.tell(What::Failed { attempt: self.attempt, failure, seen, evidence: Evidence::Answer, follow }).await;
    }

    async fn fall_silent(&mut self, cause: Cause, why: &str) {
        self.hedging = None;
        let (job, attempt) = self.names();
        warn!(%job, %attempt, owner = %self.record.owner, provider = %self.lane.name, cause = cause.as_str(), why, "nobody knows what became of the attempt");
        self.tell(What::Silent { attempt: self.attempt, cause }).await;
    }

    /// What the answer says about its provider, whatever it says about the work.
    fn learn(&self, answer: &Answer) {
        let circuit = &self.lane.circuit;
        let changed = match answer {
            Answer::Broken {
                meaning: Meaning::Failed(FailureClass::Refused | FailureClass::NotSent),
                retry_after_ms,
                ..
            } => circuit.refused(*retry_after_ms),
            // Silence says nothing.
            Answer::Broken { meaning: Meaning::Unknown(_), .. } => false,
            Answer::Broken { meaning: Meaning::Failed(_), .. } | Answer::Done { .. } | Answer::Accepted { .. } => {
                circuit.answered()
            }
        };
        if changed {
            let (provider, is_open) = (&self.lane.name, circuit.is_open());
            warn!(%provider, is_open, "a provider refuses everything, or answers again");
            self.inner.metrics.circuit(provider, is_open);
        }
    }

    /// The answer says that its provider is not what it proved to be: before the job goes on, nothing more
    /// goes there.
    async fn take_back(&mut self, task: &Task, because: &str) {
        let (inner, lane, about) = (self.inner.clone(), self.lane.clone(), (self.record.job.id, self.attempt));
        self.patiently(|| inner.take_back(task, &lane.name, because, about)).await;
    }

    /// Asks the store until it answers; nothing if the node stops before.
    async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = STORE_RETRY.0;
        let mut stage = self.inner.stage.subscribe();
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    let (job, attempt) = self.names();
                    self.inner.metrics.store_errors.inc();
                    warn!(%job, %attempt, %error, "the store is away: keeping what became of an attempt");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(STORE_RETRY.1),
                () = stopping(&mut stage) => return None,
            }
        }
    }

    /// Brings an event to the store, and stays with it while the store is away: what the provider
    /// has done is known nowhere else.
    async fn tell(&mut self, what: What) {
        let event = Event { at: self.inner.now(), what };
        let mut pause = STORE_RETRY.0;
        let mut stage = self.inner.stage.subscribe();
        loop {
            let (job, attempt) = self.names();
            match self.inner.store.apply(self.record.job.id, event.clone()).await {
                Ok(applied) => return self.told(&event.what, applied),
                Err(StoreError::Refused(why)) => {
                    self.inner.metrics.store_errors.inc();
                    error!(%job, %attempt, why, "the store refused what became of an attempt: a fault of ours");
                    return;
                }
                Err(away) => {
                    self.inner.metrics.store_errors.inc();
                    warn!(%job, %attempt, error = %away, "the store is away: keeping what became of an attempt");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(STORE_RETRY.1),
                // The next start finds the attempt open and of a dead node: unknown, as it then is.
                () = stopping(&mut stage) => {
                    if pause == STORE_RETRY.1 { return }
                    pause = STORE_RETRY.1;
                }
            }
        }
    }

    fn told(&mut self, what: &What, applied: Applied) {
        self.inner.observe(&applied);
        let (job, attempt) = self.names();
        match &applied {
            Applied::Done { record, verdict } => {
                let outcome = metrics::outcome(what, verdict);
                if let Some(outcome) = &outcome {
                    self.inner.metrics.attempt(&self.lane.name, outcome.clone());
                }
                log_verdict(
                    &job,
                    &attempt,
                    &record.owner,
                    &self.lane.name,
                    outcome.as_deref(),
                    record.job.state(),
                    verdict,
                );
                self.record = record.clone();
            }
            Applied::Refused { why, .. } => {
                warn!(%job, %attempt, owner = %self.record.owner, ?why, "what became of the attempt came too late to matter");
            }
            Applied::NoSuchJob | Applied::Expired(_) => error!(%job, %attempt, "the job of a running attempt is gone"),
        }
    }

    fn names(&self) -> (String, String) {
        names(self.record.job.id, self.attempt)
    }
}

fn names(job: JobId, attempt: AttemptId) -> (String, String) {
    (id::job_text(job), id::attempt_text(attempt))
}

/// Returns when the lease has run out before anything was sent. The phase is looked at then, and not
/// when the wait begins: what has been sent meanwhile is with the provider, lease or no lease.
pub(super) async fn fenced(member: &Member, recorded_by: NodeId, progress: &Progress) {
    member.run_out(recorded_by).await;
    if progress.phase() != Phase::BeforeConnect {
        std::future::pending::<()>().await;
    }
}

/// Returns when the engine wants everything in flight to end now.
async fn stopping(stage: &mut watch::Receiver<Stage>) {
    // An error means that the engine is gone, which is as good a reason to end.
    let _ended = stage.wait_for(|stage| *stage == Stage::Stopping).await;
}

fn log_verdict(
    job: &str,
    attempt: &str,
    owner: &Text,
    provider: &Text,
    outcome: Option<&str>,
    state: JobState,
    verdict: &Verdict,
) {
    let state = state.as_str();
    match verdict {
        Verdict::Superseded { by } => {
            let winner = by.map(id::attempt_text);
            warn!(%job, %attempt, %owner, %provider, state, ?winner, "the attempt had a result and lost: dropped, somebody may owe a refund");
        }
        Verdict::TooLate(ended) => {
            warn!(%job, %attempt, %owner, %provider, state, ended = ended.as_str(), "a word came after the attempt's end: noted");
        }
        Verdict::Started
        | Verdict::Recorded
        | Verdict::AlreadySo
        | Verdict::Unknown
        | Verdict::Won
        | Verdict::AlreadyWon
        | Verdict::Ended(_)
        | Verdict::EndedAfterClose
        | Verdict::Cancelled
        | Verdict::Replanned(_)
        | Verdict::Reopened
        | Verdict::Expired => info!(%job, %attempt, %owner, %provider, state, outcome, "attempt"),
    }
}
