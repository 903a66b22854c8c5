//! What follows a certain failure: another try, where and when, or the end of the job.

#[cfg(test)]
mod tests;

use crate::failure::FailureClass;
use crate::id::CertificateId;
use crate::job::{Attempt, AttemptState, Effects, Failover, Job, JobState, Millis, Plan, Text};

/// The longest delay between two tries that we choose ourselves, in milliseconds. A provider that
/// names a longer one is obeyed.
pub const LONGEST_BACKOFF_MS: u64 = 60_000;

/// What a task allows after a failure, as it is configured now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Where the job may go, in order of preference. The first needs no certificate.
    pub candidates: Vec<Candidate>,
    /// Tries per provider.
    pub tries: u32,
    /// Attempts per job that the policy starts by itself.
    pub max_attempts: u32,
    /// Delay before the second try, in milliseconds; doubles from try to try.
    pub backoff_ms: u64,
}

/// One provider that a job may go to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its name.
    pub provider: Text,
    /// Its valid certificate for this task, if it has one.
    pub certificate: Option<CertificateId>,
    /// It has lately refused everything. Only an order of preference: where a job has nowhere else to go,
    /// it goes there all the same.
    pub refuses: bool,
}

/// What follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another attempt.
    Retry(Plan),
    /// Nothing yet: another attempt of the job is still open and may win.
    Wait,
    /// The job fails.
    GiveUp(Failover),
}

impl Policy {
    /// A policy that allows nothing more: for jobs whose task is no longer configured.
    pub fn nothing_more() -> Policy {
        Policy { candidates: Vec::new(), tries: 0, max_attempts: 0, backoff_ms: 0 }
    }

    /// R9: the first provider needs no certificate, every other one does.
    fn allows(&self, candidate: usize) -> bool {
        candidate == 0 || self.candidates[candidate].certificate.is_some()
    }

    /// The first of these that is allowed and does not refuse; if all refuse, the first that is allowed.
    fn preferred(&self, in_order: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        let mut allowed = in_order.filter(|i| self.allows(*i));
        let first = allowed.clone().next();
        allowed.find(|i| !self.candidates[*i].refuses).or(first)
    }
}

/// The first plan of a new job: at once or at `run_at`, at its first candidate, unless that one refuses
/// everything now and another one is proved. Who refuses now says nothing about later.
pub fn opening(policy: &Policy, at: Millis, run_at: Option<Millis>) -> Option<Plan> {
    let due_at = run_at.map_or(at, |run_at| run_at.max(at));
    let to = if due_at > at { Some(0) } else { policy.preferred(0..policy.candidates.len()) };
    let first = policy.candidates.first()?;
    let candidate = policy.candidates.get(to?)?;
    Some(Plan {
        provider: candidate.provider.clone(),
        primary: first.provider.clone(),
        certificate: candidate.certificate.filter(|_| to != Some(0)),
        due_at,
    })
}

/// Where one more attempt may start beside those that run and are silent, in the order of preference;
/// nowhere if none may. After the newest attempt's provider comes the next in order, and after the last
/// the first; never one that has an open attempt of this job already.
pub fn hedges<'a>(job: &Job, policy: &'a Policy) -> Vec<&'a Candidate> {
    let nobody_knows =
        job.attempts.iter().any(|a| matches!(a.state, AttemptState::Starting | AttemptState::Unknown { .. }));
    let may_start = job.effects == Effects::Racing && job.state() == JobState::Running && !nobody_knows;
    let Some(newest) = job.attempts.last().filter(|_| may_start && !is_at_its_end(job, policy)) else {
        return Vec::new();
    };
    let after = policy.candidates.iter().position(|c| c.provider == newest.provider).map_or(0, |here| here + 1);
    let is_busy = |c: &Candidate| job.attempts.iter().any(|a| a.provider == c.provider && a.state.is_open());
    (after..policy.candidates.len())
        .chain(0..after)
        .filter(|i| policy.allows(*i))
        .map(|i| &policy.candidates[i])
        .filter(|c| !c.refuses && !is_busy(c) && tries_at(job, c) < policy.tries)
        .collect()
}

/// What follows when no attempt of `job` is open: after the end of `ended`, the attempt that has just
/// failed or was abandoned, or where what was planned after it may not start.
///
/// The job stays with the provider while it has tries there; then it goes to the next in order that
/// is allowed and has tries left, and at the end of the order to those before: where attempts
/// raced, or a person chose, they may have some. The first provider is always allowed, another one
/// with a certificate (R9). Of those allowed, one that refuses everything now comes last.
///
/// `retry_after_ms` is the delay that the provider asked for; `jitter` is from 0 to 1000.
pub fn next(
    job: &Job,
    ended: Option<&Attempt>,
    retry_after_ms: Option<u64>,
    policy: &Policy,
    jitter: u16,
    at: Millis,
) -> Next {
    if job.attempts.iter().any(|a| ended.is_none_or(|ended| a.id != ended.id) && a.state.is_open()) {
        return Next::Wait;
    }
    if is_at_its_end(job, policy) {
        return Next::GiveUp(Failover::NotApplicable);
    }
    let here = policy.candidates.iter().position(|c| ended.is_some_and(|ended| c.provider == ended.provider));
    let first = here.unwrap_or(0);
    let in_order = (first..policy.candidates.len()).chain(0..first);
    let with_tries: Vec<usize> = in_order.filter(|i| tries_at(job, &policy.candidates[*i]) < policy.tries).collect();
    match policy.preferred(with_tries.iter().copied()) {
        Some(to) => {
            let asked_for = retry_after_ms.filter(|_| Some(to) == here);
            let delay_ms = if Some(to) == here && ended.is_none_or(did_nothing_worth_a_pause) {
                0
            } else {
                asked_for
                    .unwrap_or_else(|| backoff_ms(policy.backoff_ms, tries_at(job, &policy.candidates[to]), jitter))
            };
            plan(job, policy, to, at, delay_ms)
        }
        None if with_tries.is_empty() => Next::GiveUp(Failover::NotApplicable),
        None => Next::GiveUp(Failover::NoVerifiedProvider),
    }
}

/// The policy starts nothing more by itself: our request is wrong, or the attempts are used up.
fn is_at_its_end(job: &Job, policy: &Policy) -> bool {
    let by_policy = job.counted_attempts().filter(|a| !a.by_hand).count();
    job.counted_attempts().any(|a| a.invalid().is_some()) || by_policy >= policy.max_attempts as usize
}

/// It never happened, or was let go: there is nobody to spare by waiting.
fn did_nothing_worth_a_pause(ended: &Attempt) -> bool {
    ended.failure().is_none_or(|failure| failure.class == FailureClass::NotExecuted)
}

fn tries_at(job: &Job, candidate: &Candidate) -> u32 {
    job.counted_attempts().filter(|a| a.provider == candidate.provider && uses_up_a_try(a)).count() as u32
}

/// A try at `policy.candidates[to]` after `delay_ms`, unless the job's deadline comes first.
fn plan(job: &Job, policy: &Policy, to: usize, at: Millis, delay_ms: u64) -> Next {
    let due_at = at.saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX));
    if job.deadline.is_some_and(|deadline| due_at >= deadline) {
        return Next::GiveUp(Failover::NotApplicable);
    }
    let candidate = &policy.candidates[to];
    Next::Retry(Plan {
        provider: candidate.provider.clone(),
        primary: policy.candidates[0].provider.clone(),
        certificate: candidate.certificate.filter(|_| to != 0),
        due_at,
    })
}

/// Whether an attempt counts as one of the tries at its provider. What never happened does not, and
/// neither does what was released without evidence: the operator or the policy asked for another.
fn uses_up_a_try(attempt: &Attempt) -> bool {
    match &attempt.state {
        AttemptState::Failed { failure, .. } => failure.class != FailureClass::NotExecuted,
        AttemptState::Abandoned { .. } => false,
        AttemptState::Starting
        | AttemptState::Running
        | AttemptState::Unknown { .. }
        | AttemptState::Succeeded { .. }
        | AttemptState::Superseded { .. }
        | AttemptState::Cancelled { .. } => true,
    }
}

/// Delay before the next try at a provider, in milliseconds: none before the first, then `first`
/// doubled with each try made, at most [`LONGEST_BACKOFF_MS`], of which the upper half is left to
/// chance so that jobs which failed together do not come back together.
pub fn backoff_ms(first: u64, tries_made: u32, jitter: u16) -> u64 {
    let Some(doublings) = tries_made.checked_sub(1) else { return 0 };
    let whole = first.saturating_mul(1 << doublings.min(32)).min(LONGEST_BACKOFF_MS);
    whole / 2 + whole / 2 * u64::from(jitter.min(1000)) / 1000
}
