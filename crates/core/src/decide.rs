//! The one function that changes a job.
//!
//! A store locks the job, calls [`decide`], writes [`Change::job`] down with the guards repeated in
//! its own terms, and commits. Nothing else in the product knows which transition is legal.
//! docs/states.md shows the answers to all events in all states; it is printed from this function.

mod answer;
#[cfg(test)]
mod tests;

pub use answer::{Change, Illegal, Touched, Verdict};

use crate::event::{Event, Evidence, Follow, LateWord, Notice, Payload, Start, Trigger, What};
use crate::failure::{Cause, Failure, FailureClass};
use crate::id::{AttemptId, CertificateId};
use crate::job::{
    Attempt, AttemptState, AttemptStateName, Effects, Failover, GiveUpClass, GivenUp, Job, JobState, Millis, Plan,
    Resolution, Seen, Slot, Text,
};
use crate::next::{Next, Policy, next};

/// Decides what `event` makes of `job`.
///
/// # Errors
///
/// [`Illegal`] says which rule forbids it; nothing is to be written then.
pub fn decide(job: &Job, event: &Event) -> Result<Change, Illegal> {
    let at = event.at;
    match &event.what {
        What::Start(start) => start_attempt(job, start, at),
        What::Running { attempt, evidence } => mark_running(job, *attempt, evidence, at),
        What::Handle { attempt, handle } => record_handle(job, *attempt, handle),
        What::Silent { attempt, cause } => fall_silent(job, *attempt, *cause, at),
        What::Succeeded { attempt, result, seen, evidence } => succeed(job, *attempt, result, seen, evidence, at),
        What::Failed { attempt, failure, seen, evidence, follow } => {
            fail(job, *attempt, failure, seen, evidence, follow, at)
        }
        What::Abandoned { attempt, evidence, follow } => abandon(job, *attempt, evidence, follow, at),
        What::CancelConfirmed { attempt, never_sent, evidence } => {
            confirm_cancel(job, *attempt, *never_sent, evidence, at)
        }
        What::Cancel => cancel(job),
        What::Reopen { provider } => reopen(job, provider, at),
        What::DeadlinePassed => expire(job, at),
        What::Unproved { certificate, follow } => replan(job, *certificate, follow, at),
    }
}

fn start_attempt(job: &Job, start: &Start, at: Millis) -> Result<Change, Illegal> {
    let Slot::Open { plan } = &job.slot else {
        return Err(Illegal::JobClosed(job.state()));
    };
    if is_past_deadline(job, at) {
        return Err(Illegal::DeadlinePassed);
    }
    for other in &job.attempts {
        // The same start a second time: an attempt is never reused for another try.
        if other.id == start.attempt && !other.state.is_open() {
            return Err(Illegal::AttemptClosed(other.state.name()));
        }
        let blocks = match (&other.state, start.trigger) {
            (AttemptState::Starting | AttemptState::Unknown { .. }, _) => true,
            (AttemptState::Running, Trigger::Hedge { .. } | Trigger::Hand { .. }) => job.effects == Effects::Exclusive,
            (AttemptState::Running, Trigger::Plan) => true,
            (
                AttemptState::Succeeded { .. }
                | AttemptState::Failed { .. }
                | AttemptState::Superseded { .. }
                | AttemptState::Cancelled { .. }
                | AttemptState::Abandoned { .. },
                _,
            ) => false,
        };
        if blocks || other.id == start.attempt {
            return Err(Illegal::AttemptInFlight { attempt: other.id, state: other.state.name() });
        }
    }
    let by_hand = match start.trigger {
        Trigger::Plan => {
            let due = plan.as_ref().is_some_and(|p| p.provider == start.provider && p.due_at <= at);
            if !due {
                return Err(Illegal::NotDue);
            }
            false
        }
        // It counts for the task's limits, which whoever hedges has looked at: nothing came since.
        Trigger::Hedge { seen } if job.state() != JobState::Running || job.attempts.len() != seen as usize => {
            return Err(Illegal::NotDue);
        }
        Trigger::Hedge { .. } => false,
        Trigger::Hand { .. } => true,
    };
    let proved = start.provider == start.primary || start.certificate.is_some();
    if !proved && start.trigger != (Trigger::Hand { force: true }) {
        return Err(Illegal::NotVerified { provider: start.provider.clone() });
    }
    let mut after = job.clone();
    after.slot = Slot::Open { plan: None };
    after.attempts.push(Attempt {
        id: start.attempt,
        number: job.attempts.len() as u32 + 1,
        provider: start.provider.clone(),
        primary: start.primary.clone(),
        by_hand,
        certificate: start.certificate,
        node: start.node,
        version_read: job.version,
        started_at: at,
        handle: None,
        seen: Seen::default(),
        state: AttemptState::Starting,
    });
    Ok(Change {
        job: after,
        touched: Some(Touched::Inserted(start.attempt)),
        notices: Vec::new(),
        verdict: Verdict::Started,
    })
}

fn mark_running(job: &Job, id: AttemptId, evidence: &Evidence, at: Millis) -> Result<Change, Illegal> {
    let attempt = find(job, id)?;
    may_be_decreed(attempt, evidence)?;
    match &attempt.state {
        AttemptState::Starting => Ok(update(job, id, Verdict::Recorded, |a| a.state = AttemptState::Running)),
        AttemptState::Running => Ok(nothing(job, Verdict::AlreadySo)),
        AttemptState::Unknown { .. } => {
            let mut change = update(job, id, Verdict::Recorded, |a| a.state = AttemptState::Running);
            change.notices.extend(resolved(attempt, evidence, AttemptStateName::Running, at).1);
            Ok(change)
        }
        AttemptState::Succeeded { .. }
        | AttemptState::Failed { .. }
        | AttemptState::Superseded { .. }
        | AttemptState::Cancelled { .. }
        | AttemptState::Abandoned { .. } => Err(Illegal::AttemptClosed(attempt.state.name())),
    }
}

fn record_handle(job: &Job, id: AttemptId, handle: &Text) -> Result<Change, Illegal> {
    let attempt = find(job, id)?;
    match &attempt.state {
        AttemptState::Running | AttemptState::Unknown { .. } if attempt.handle.as_ref() == Some(handle) => {
            Ok(nothing(job, Verdict::AlreadySo))
        }
        AttemptState::Starting | AttemptState::Running => Ok(update(job, id, Verdict::Recorded, |a| {
            a.handle = Some(handle.clone());
            a.state = AttemptState::Running;
        })),
        // The deadline has passed; a handle says where to ask, not that the work is alive.
        AttemptState::Unknown { .. } => Ok(update(job, id, Verdict::Recorded, |a| a.handle = Some(handle.clone()))),
        AttemptState::Succeeded { .. }
        | AttemptState::Failed { .. }
        | AttemptState::Superseded { .. }
        | AttemptState::Cancelled { .. }
        | AttemptState::Abandoned { .. } => Err(Illegal::AttemptClosed(attempt.state.name())),
    }
}

fn fall_silent(job: &Job, id: AttemptId, cause: Cause, at: Millis) -> Result<Change, Illegal> {
    let attempt = find(job, id)?;
    match &attempt.state {
        AttemptState::Starting | AttemptState::Running => {
            let mut change =
                update(job, id, Verdict::Unknown, |a| a.state = AttemptState::Unknown { cause, since: at });
            change.notices.push(Notice::Unknown { attempt: id, cause });
            Ok(change)
        }
        // The first cause stands: what came later is only more silence.
        AttemptState::Unknown { .. } => Ok(nothing(job, Verdict::AlreadySo)),
        AttemptState::Succeeded { .. }
        | AttemptState::Failed { .. }
        | AttemptState::Superseded { .. }
        | AttemptState::Cancelled { .. }
        | AttemptState::Abandoned { .. } => Err(Illegal::AttemptClosed(attempt.state.name())),
    }
}

fn succeed(
    job: &Job,
    id: AttemptId,
    result: &Payload,
    seen: &Seen,
    evidence: &Evidence,
    at: Millis,
) -> Result<Change, Illegal> {
    let attempt = find(job, id)?;
    if !attempt.state.is_open() {
        if job.completed_by() == Some(id) && !evidence.is_decree() {
            return Ok(nothing(job, Verdict::AlreadyWon));
        }
        return too_late(job, attempt, evidence, LateWord::Succeeded(result.dropped()));
    }
    may_be_decreed(attempt, evidence)?;
    // The fence: the slot is open, and nothing closed it since this attempt started.
    let wins = matches!(job.slot, Slot::Open { .. }) && job.version == attempt.version_read;
    let by = job.completed_by();
    let name = if wins { AttemptStateName::Succeeded } else { AttemptStateName::Superseded };
    let (resolution, notice) = resolved(attempt, evidence, name, at);
    let verdict = if wins { Verdict::Won } else { Verdict::Superseded { by } };
    let mut change = update(job, id, verdict, |a| {
        a.seen = seen.clone();
        a.state = if wins {
            AttemptState::Succeeded { at, resolution }
        } else {
            AttemptState::Superseded { at, by, resolution }
        };
    });
    change.notices.extend(notice);
    if wins {
        change.job.slot = Slot::Filled { by: id, result: result.text.clone() };
        change.job.version += 1;
    } else {
        change.notices.push(Notice::RaceLost { attempt: id, winner: by, dropped: Some(result.dropped()) });
    }
    Ok(change)
}

fn fail(
    job: &Job,
    id: AttemptId,
    failure: &Failure,
    seen: &Seen,
    evidence: &Evidence,
    follow: &Follow,
    at: Millis,
) -> Result<Change, Illegal> {
    let attempt = find(job, id)?;
    if !attempt.state.is_open() {
        return too_late(job, attempt, evidence, LateWord::Failed(failure.class));
    }
    may_be_decreed(attempt, evidence)?;
    let (resolution, notice) = resolved(attempt, evidence, AttemptStateName::Failed, at);
    let mut change = update(job, id, Verdict::EndedAfterClose, |a| {
        a.seen = seen.clone();
        a.state = AttemptState::Failed { at, failure: Failure { retry_after_ms: None, ..failure.clone() }, resolution };
    });
    change.notices.extend(notice);
    Ok(follow_up(change, id, failure.retry_after_ms, follow, at))
}

fn abandon(job: &Job, id: AttemptId, evidence: &Evidence, follow: &Follow, at: Millis) -> Result<Change, Illegal> {
    let attempt = find(job, id)?;
    if !evidence.is_decree() {
        return Err(Illegal::NotADecree);
    }
    may_be_decreed(attempt, evidence)?;
    let resolution = Resolution { by: evidence.resolved_by(), at, reason: evidence.reason().cloned() };
    let notice = resolved(attempt, evidence, AttemptStateName::Abandoned, at).1;
    let mut change =
        update(job, id, Verdict::EndedAfterClose, |a| a.state = AttemptState::Abandoned { at, resolution });
    change.notices.extend(notice);
    Ok(follow_up(change, id, None, follow, at))
}

fn confirm_cancel(
    job: &Job,
    id: AttemptId,
    never_sent: bool,
    evidence: &Evidence,
    at: Millis,
) -> Result<Change, Illegal> {
    let attempt = find(job, id)?;
    if !attempt.state.is_open() {
        return too_late(job, attempt, evidence, LateWord::Cancelled);
    }
    if matches!(job.slot, Slot::Open { .. }) {
        return Err(Illegal::JobOpen);
    }
    may_be_decreed(attempt, evidence)?;
    let (resolution, notice) = resolved(attempt, evidence, AttemptStateName::Cancelled, at);
    let mut change = update(job, id, Verdict::EndedAfterClose, |a| {
        a.state = AttemptState::Cancelled { at, never_sent, resolution };
    });
    change.notices.extend(notice);
    Ok(change)
}

fn cancel(job: &Job) -> Result<Change, Illegal> {
    match &job.slot {
        Slot::Open { .. } => {
            let mut change = nothing(job, Verdict::Cancelled);
            change.job.slot = Slot::Cancelled;
            change.job.version += 1;
            Ok(change)
        }
        Slot::Cancelled => Ok(nothing(job, Verdict::AlreadySo)),
        Slot::Filled { .. } | Slot::GivenUp(_) => Err(Illegal::JobClosed(job.state())),
    }
}

fn reopen(job: &Job, provider: &Text, at: Millis) -> Result<Change, Illegal> {
    match &job.slot {
        // It could only expire again: a wish with a deadline ends there.
        Slot::GivenUp(_) if is_past_deadline(job, at) => Err(Illegal::DeadlinePassed),
        Slot::GivenUp(_) => {
            let mut change = nothing(job, Verdict::Reopened);
            let plan = Plan { provider: provider.clone(), primary: provider.clone(), certificate: None, due_at: at };
            change.job.slot = Slot::Open { plan: Some(plan) };
            change.job.version += 1;
            change.job.tries_from = job.attempts.len() as u32;
            Ok(change)
        }
        Slot::Open { .. } => match job.attempts.iter().find(|a| a.state.is_open()) {
            Some(open) => Err(Illegal::AttemptInFlight { attempt: open.id, state: open.state.name() }),
            None => Ok(nothing(job, Verdict::AlreadySo)),
        },
        Slot::Filled { .. } | Slot::Cancelled => Err(Illegal::JobClosed(job.state())),
    }
}

fn expire(job: &Job, at: Millis) -> Result<Change, Illegal> {
    match job.state() {
        JobState::Queued if is_past_deadline(job, at) => {
            let mut change = nothing(job, Verdict::Expired);
            change.job.slot = Slot::GivenUp(GivenUp {
                class: GiveUpClass::Deadline,
                status: None,
                message: "the job's deadline passed before an attempt could start".into(),
                failover: Failover::NotApplicable,
            });
            change.job.version += 1;
            Ok(change)
        }
        JobState::Queued => Err(Illegal::NotDue),
        // What is in flight is paid for: it is waited for, and nothing follows it.
        JobState::Running | JobState::Unknown => Ok(nothing(job, Verdict::AlreadySo)),
        JobState::Succeeded | JobState::Failed | JobState::Cancelled => Err(Illegal::JobClosed(job.state())),
    }
}

/// The plan may not start (R9): what else?
fn replan(job: &Job, certificate: Option<CertificateId>, follow: &Follow, at: Millis) -> Result<Change, Illegal> {
    let Slot::Open { plan } = &job.slot else {
        return Err(Illegal::JobClosed(job.state()));
    };
    // Another plan has taken its place, or an attempt has started. It need not be due: what does not hold now
    // will not hold then.
    let stands = |plan: &&Plan| plan.provider != plan.primary && plan.certificate == certificate;
    let Some(plan) = plan.as_ref().filter(stands) else {
        return Err(Illegal::NotDue);
    };
    if is_past_deadline(job, at) {
        return Err(Illegal::DeadlinePassed);
    }
    let last = job.counted_attempts().last();
    // Whatever was read of it before: this one does not hold.
    let mut policy = Policy::clone(&follow.policy);
    let it = policy.candidates.iter_mut().filter(|c| c.certificate == certificate);
    it.for_each(|candidate| candidate.certificate = None);
    let what = match (next(job, last, None, &policy, follow.jitter, at), last) {
        // Nothing was tried yet, so there is no failure to end with: its first provider needs no certificate.
        (Next::GiveUp(_) | Next::Wait, None) => {
            let primary = plan.primary.clone();
            Next::Retry(Plan { provider: primary.clone(), primary, certificate: None, due_at: at })
        }
        // It keeps its place in the line, or the pause that it makes.
        (Next::Retry(anew), _) if anew.provider == plan.provider => Next::Retry(Plan { due_at: plan.due_at, ..anew }),
        (next, _) => next,
    };
    let mut change = nothing(job, Verdict::Replanned(what.clone()));
    match (what, last) {
        (Next::Retry(plan), _) => change.job.slot = Slot::Open { plan: Some(plan) },
        (Next::GiveUp(failover), Some(last)) => {
            change.job.slot = Slot::GivenUp(given_up(job, last, failover));
            change.job.version += 1;
        }
        (Next::Wait, _) | (Next::GiveUp(_), None) => {}
    }
    Ok(change)
}

fn is_past_deadline(job: &Job, at: Millis) -> bool {
    job.deadline.is_some_and(|deadline| deadline <= at)
}

/// An attempt has just ended in `change` without a result: what becomes of the job?
fn follow_up(mut change: Change, id: AttemptId, retry_after_ms: Option<u64>, follow: &Follow, at: Millis) -> Change {
    let Some(ended) = change.job.attempt(id) else { return change };
    let open = matches!(change.job.slot, Slot::Open { .. }) && change.job.version == ended.version_read;
    if !open {
        let winner = change.job.completed_by();
        if winner.is_some() {
            change.notices.push(Notice::RaceLost { attempt: id, winner, dropped: None });
        }
        return change;
    }
    let what = next(&change.job, Some(ended), retry_after_ms, &follow.policy, follow.jitter, at);
    match &what {
        Next::Wait => {}
        Next::Retry(plan) => change.job.slot = Slot::Open { plan: Some(plan.clone()) },
        Next::GiveUp(failover) => {
            change.job.slot = Slot::GivenUp(given_up(&change.job, ended, *failover));
            change.job.version += 1;
        }
    }
    change.verdict = Verdict::Ended(what);
    change
}

fn given_up(job: &Job, ended: &Attempt, failover: Failover) -> GivenUp {
    // Of racing attempts the one that found our request wrong says why, not the one that ended last.
    let reason = job.counted_attempts().find_map(Attempt::invalid).or(ended.failure());
    match reason {
        Some(failure) => GivenUp {
            class: GiveUpClass::Failure(failure.class),
            status: failure.status,
            message: failure.message.clone(),
            failover,
        },
        None => GivenUp {
            class: GiveUpClass::Abandoned,
            status: None,
            message: "the last attempt was abandoned and the task allows no other".into(),
            failover,
        },
    }
}

fn find(job: &Job, id: AttemptId) -> Result<&Attempt, Illegal> {
    job.attempt(id).ok_or(Illegal::NoSuchAttempt)
}

/// A decree ends what is unknown; while the attempt is alive there will be a fact, and after its
/// end there is nothing to decide.
fn may_be_decreed(attempt: &Attempt, evidence: &Evidence) -> Result<(), Illegal> {
    match (evidence.is_decree(), attempt.state.name()) {
        (false, _) | (true, AttemptStateName::Unknown) => Ok(()),
        (true, state @ (AttemptStateName::Starting | AttemptStateName::Running)) => {
            Err(Illegal::AttemptInFlight { attempt: attempt.id, state })
        }
        (
            true,
            state @ (AttemptStateName::Succeeded
            | AttemptStateName::Failed
            | AttemptStateName::Superseded
            | AttemptStateName::Cancelled
            | AttemptStateName::Abandoned),
        ) => Err(Illegal::AttemptClosed(state)),
    }
}

fn too_late(job: &Job, attempt: &Attempt, evidence: &Evidence, word: LateWord) -> Result<Change, Illegal> {
    let state = attempt.state.name();
    if evidence.is_decree() {
        return Err(Illegal::AttemptClosed(state));
    }
    let mut change = nothing(job, Verdict::TooLate(state));
    // The same word twice is not news: a callback and a look-up often both come.
    let is_news = match word {
        LateWord::Succeeded(_) => !matches!(state, AttemptStateName::Superseded),
        LateWord::Failed(_) => !matches!(state, AttemptStateName::Failed),
        LateWord::Cancelled => !matches!(state, AttemptStateName::Cancelled),
    };
    if is_news {
        change.notices.push(Notice::Late { attempt: attempt.id, state, word });
    }
    Ok(change)
}

/// The resolution and its notice, if `attempt` was unknown until now.
fn resolved(
    attempt: &Attempt,
    evidence: &Evidence,
    state: AttemptStateName,
    at: Millis,
) -> (Option<Resolution>, Option<Notice>) {
    if attempt.state.name() != AttemptStateName::Unknown {
        return (None, None);
    }
    let by = evidence.resolved_by();
    let reason = evidence.reason().cloned();
    let notice = Notice::Resolved { attempt: attempt.id, by, state, reason: reason.clone() };
    (Some(Resolution { by, at, reason }), Some(notice))
}

fn nothing(job: &Job, verdict: Verdict) -> Change {
    Change { job: job.clone(), touched: None, notices: Vec::new(), verdict }
}

fn update(job: &Job, id: AttemptId, verdict: Verdict, write: impl FnOnce(&mut Attempt)) -> Change {
    let mut after = job.clone();
    if let Some(attempt) = after.attempts.iter_mut().find(|a| a.id == id) {
        write(attempt);
    }
    Change { job: after, touched: Some(Touched::Updated(id)), notices: Vec::new(), verdict }
}

/// A failure class and nothing more, for callers that have no more to say.
impl From<FailureClass> for Failure {
    fn from(class: FailureClass) -> Failure {
        Failure { class, status: None, message: class.as_str().into(), retry_after_ms: None }
    }
}
