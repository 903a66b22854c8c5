//! All interleavings of small worlds: from a new job, every event is tried in every state that can
//! be reached, until nothing new comes up. Each rule is then asked of every single step.
//!
//! A world has a few attempts, three providers (the first, one with a certificate, one without), a
//! policy and perhaps a deadline. Times and what no rule reads are levelled out, so that the worlds
//! stay finite.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;
use std::sync::{Arc, OnceLock};

use crate::*;

const FIRST: &str = "first";
const CERTIFIED: &str = "certified";
const UNPROVED: &str = "unproved";

const EARLY: Millis = 0;
const DEADLINE: Millis = 10;
const NODE: NodeId = NodeId(1);

/// The bounds of a world.
#[derive(Clone, Copy, Debug)]
struct World {
    name: &'static str,
    effects: Effects,
    deadline: Option<Millis>,
    /// Attempts that the policy starts in one life of the job.
    max_attempts: u32,
    /// No start by hand and no hedge beyond so many attempts.
    attempts: usize,
    /// How often a failed job may be reopened.
    reopenings: u32,
    scope: Scope,
}

/// How much of what can be said and started is said and started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Everything,
    /// One way to fail, to be cancelled and to start by hand, no handles: for worlds of more attempts.
    Lean,
}

const PLAIN: World = World {
    name: "",
    effects: Effects::Exclusive,
    deadline: None,
    max_attempts: 2,
    attempts: 2,
    reopenings: 0,
    scope: Scope::Everything,
};

const WORLDS: [World; 6] = [
    World { name: "exclusive, two attempts", ..PLAIN },
    World { name: "racing, two attempts", effects: Effects::Racing, ..PLAIN },
    World { name: "exclusive, with a deadline", deadline: Some(DEADLINE), reopenings: 1, scope: Scope::Lean, ..PLAIN },
    World {
        name: "racing, reopened",
        effects: Effects::Racing,
        max_attempts: 1,
        reopenings: 1,
        scope: Scope::Lean,
        ..PLAIN
    },
    World { name: "exclusive, three attempts", max_attempts: 3, attempts: 3, scope: Scope::Lean, ..PLAIN },
    World {
        name: "racing, three attempts",
        effects: Effects::Racing,
        max_attempts: 3,
        attempts: 3,
        scope: Scope::Lean,
        ..PLAIN
    },
];

/// A job and whether its world's clock has passed the deadline.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    job: Job,
    late: bool,
}

/// One event in one state, and what `decide` said.
struct Step<'a> {
    before: &'a Job,
    event: &'a Event,
    answer: &'a Result<Change, Illegal>,
}

struct Explored {
    world: World,
    states: Vec<State>,
    /// Between indices of `states`, without the steps in which the caller cancels.
    steps_without_cancel: Vec<(usize, usize)>,
    tried: usize,
}

fn policy(world: &World) -> Arc<Policy> {
    policy_with(world, Some(CertificateId(1)), false)
}

fn policy_with(world: &World, certificate: Option<CertificateId>, first_refuses: bool) -> Arc<Policy> {
    let candidate = |name: &str, certificate| Candidate {
        provider: name.into(),
        certificate,
        refuses: first_refuses && name == FIRST,
    };
    Arc::new(Policy {
        candidates: vec![candidate(FIRST, None), candidate(CERTIFIED, certificate), candidate(UNPROVED, None)],
        tries: 2,
        max_attempts: world.max_attempts,
        backoff_ms: 0,
    })
}

fn explored() -> &'static [Explored] {
    static ALL: OnceLock<Vec<Explored>> = OnceLock::new();
    ALL.get_or_init(|| WORLDS.into_iter().map(explore).collect())
}

fn explore(world: World) -> Explored {
    let plan = opening(&policy(&world), EARLY, None).expect("there is a first provider");
    let new = State { job: Job::new(JobId(1), world.effects, world.deadline, plan), late: false };
    let mut found = HashMap::from([(new.clone(), 0)]);
    let mut explored = Explored { world, states: vec![new], steps_without_cancel: Vec::new(), tried: 0 };
    let mut next = 0;
    while next < explored.states.len() {
        let state = explored.states[next].clone();
        let mut reached: Vec<(State, bool)> = Vec::new();
        if world.deadline.is_some() {
            reached.push((State { late: true, ..state.clone() }, false));
        }
        for event in events(&world, &state) {
            explored.tried += 1;
            if let Ok(change) = decide(&state.job, &event) {
                let cancelled = event.what == What::Cancel;
                reached.push((State { job: levelled(change.job), late: state.late }, cancelled));
            }
        }
        for (state, cancelled) in reached {
            let index = *found.entry(state).or_insert_with_key(|new| {
                explored.states.push(new.clone());
                explored.states.len() - 1
            });
            if !cancelled {
                explored.steps_without_cancel.push((next, index));
            }
        }
        next += 1;
    }
    explored
}

/// Every event that a world knows, legal or not.
fn events(world: &World, state: &State) -> Vec<Event> {
    let mut all = vec![What::Cancel, What::DeadlinePassed];
    let follow = |certificate| Follow { policy: policy_with(world, certificate, false), jitter: 0 };
    let unproved = |follow| What::Unproved { certificate: Some(CertificateId(1)), follow };
    // Suspended; and, as another node reads it, issued anew.
    all.extend([unproved(follow(None)), unproved(follow(Some(CertificateId(2))))]);
    let used_up = matches!(state.job.slot, Slot::GivenUp(_)) && state.job.version > 2 * world.reopenings;
    if !used_up {
        all.push(What::Reopen { provider: FIRST.into() });
    }
    starts(world, &state.job, &mut all);
    for attempt in (1..=state.job.attempts.len() as u128).chain([99]).map(AttemptId) {
        words(world, attempt, &mut all);
    }
    let at = if state.late { DEADLINE } else { EARLY };
    all.into_iter().map(|what| Event { at, what }).collect()
}

fn starts(world: &World, job: &Job, all: &mut Vec<What>) {
    let attempt = AttemptId(job.attempts.len() as u128 + 1);
    let start = |provider: &str, certificate, trigger| {
        What::Start(Start {
            attempt,
            provider: provider.into(),
            primary: FIRST.into(),
            certificate,
            trigger,
            node: NODE,
        })
    };
    if let Slot::Open { plan: Some(plan) } = &job.slot {
        all.push(start(&plan.provider, plan.certificate, Trigger::Plan));
    }
    all.push(start("never planned", Some(CertificateId(1)), Trigger::Plan));
    if job.attempts.len() < world.attempts {
        let seen = job.attempts.len() as u32;
        all.push(start(CERTIFIED, Some(CertificateId(1)), Trigger::Hedge { seen }));
        all.push(start(CERTIFIED, Some(CertificateId(1)), Trigger::Hedge { seen: seen.saturating_sub(1) }));
        all.push(start(UNPROVED, None, Trigger::Hedge { seen }));
        all.push(start(UNPROVED, None, Trigger::Hand { force: false }));
        all.push(start(FIRST, None, Trigger::Hand { force: false }));
        if world.scope == Scope::Everything {
            all.push(start(UNPROVED, None, Trigger::Hand { force: true }));
        }
    }
    if let Some(again) = job.attempts.first() {
        let mut repeated = start(FIRST, None, Trigger::Hand { force: false });
        if let What::Start(start) = &mut repeated {
            start.attempt = again.id;
        }
        all.push(repeated);
    }
}

/// Everything that can be said about an attempt.
fn words(world: &World, attempt: AttemptId, all: &mut Vec<What>) {
    let follow = Follow { policy: policy(world), jitter: 0 };
    let operator = || Evidence::Operator { reason: "looked".into() };
    let failed = |class: FailureClass, evidence| What::Failed {
        attempt,
        failure: class.into(),
        seen: Seen::default(),
        evidence,
        follow: follow.clone(),
    };
    let succeeded = |evidence| What::Succeeded { attempt, result: payload(attempt), seen: Seen::default(), evidence };
    let confirmed = |never_sent, evidence| What::CancelConfirmed { attempt, never_sent, evidence };
    let diverted = |class: FailureClass| What::Failed {
        attempt,
        failure: class.into(),
        seen: Seen::default(),
        evidence: Evidence::Answer,
        follow: Follow { policy: policy_with(world, Some(CertificateId(1)), true), jitter: 0 },
    };
    all.extend([
        What::Running { attempt, evidence: Evidence::Answer },
        What::Silent { attempt, cause: Cause::Timeout },
        succeeded(Evidence::Answer),
        failed(FailureClass::Refused, Evidence::Answer),
        What::Abandoned { attempt, evidence: operator(), follow: follow.clone() },
        confirmed(true, Evidence::Lookup),
    ]);
    if world.scope == Scope::Everything {
        all.extend([
            What::Running { attempt, evidence: operator() },
            What::Handle { attempt, handle: "handle".into() },
            succeeded(operator()),
            diverted(FailureClass::Refused),
            failed(FailureClass::Invalid, Evidence::Answer),
            failed(FailureClass::NotExecuted, operator()),
            What::Abandoned { attempt, evidence: Evidence::Answer, follow: follow.clone() },
            confirmed(false, Evidence::Answer),
            confirmed(true, operator()),
        ]);
    }
}

fn payload(attempt: AttemptId) -> Payload {
    Payload { text: result_of(attempt).into(), digest: [attempt.0 as u8; 32] }
}

fn result_of(attempt: AttemptId) -> String {
    format!("the result of attempt {}", attempt.0)
}

/// The job without what no rule reads: times, and the past of attempts that have ended.
fn levelled(mut job: Job) -> Job {
    if let Slot::Open { plan: Some(plan) } = &mut job.slot {
        plan.due_at = EARLY;
    }
    for attempt in &mut job.attempts {
        attempt.started_at = EARLY;
        if !attempt.state.is_open() {
            attempt.handle = None;
        }
        match &mut attempt.state {
            AttemptState::Starting | AttemptState::Running => {}
            AttemptState::Unknown { since, .. } => *since = EARLY,
            AttemptState::Succeeded { at, resolution }
            | AttemptState::Failed { at, resolution, .. }
            | AttemptState::Superseded { at, resolution, .. }
            | AttemptState::Cancelled { at, resolution, .. } => {
                *at = EARLY;
                *resolution = None;
            }
            AttemptState::Abandoned { at, resolution } => {
                *at = EARLY;
                resolution.at = EARLY;
            }
        }
    }
    job
}

/// Asks every step of every world.
fn in_every_step(mut ask: impl FnMut(&Step<'_>)) {
    for explored in explored() {
        for state in &explored.states {
            for event in events(&explored.world, state) {
                let answer = decide(&state.job, &event);
                ask(&Step { before: &state.job, event: &event, answer: &answer });
            }
        }
    }
}

/// Asks every step that changes something or is at least noted.
fn in_every_change(mut ask: impl FnMut(&Step<'_>, &Change)) {
    in_every_step(|step| {
        if let Ok(change) = step.answer {
            ask(step, change);
        }
    });
}

impl Step<'_> {
    /// Every attempt as it was and as it is.
    fn attempts<'a>(&'a self, change: &'a Change) -> impl Iterator<Item = (&'a Attempt, &'a Attempt)> {
        self.before.attempts.iter().zip(&change.job.attempts)
    }
}

#[test]
fn the_worlds_are_explored_to_their_ends() {
    let mut verdicts = HashSet::new();
    let mut refusals = HashSet::new();
    in_every_step(|step| match step.answer {
        Ok(change) => drop(verdicts.insert(discriminant(&change.verdict))),
        Err(illegal) => drop(refusals.insert(discriminant(illegal))),
    });
    let mut attempt_states = HashSet::new();
    let mut job_states = HashSet::new();
    for explored in explored() {
        let Explored { world, states, tried, .. } = explored;
        println!("{}: {} states, {tried} events tried", world.name, states.len());
        job_states.extend(states.iter().map(|state| state.job.state()));
        attempt_states.extend(states.iter().flat_map(|state| state.job.attempts.iter().map(|a| a.state.name())));
    }
    assert_eq!(job_states.len(), JobState::ALL.len());
    assert_eq!(attempt_states.len(), AttemptStateName::ALL.len());
    assert_eq!(verdicts.len(), 14, "each verdict is given somewhere");
    assert_eq!(refusals.len(), 9, "each refusal is given somewhere");
}

#[test]
fn every_job_that_can_be_reached_is_sound() {
    in_every_change(|step, change| assert_eq!(change.job.unsound(), None, "{step:?}"));
}

#[test]
fn the_state_of_a_job_is_what_the_slot_and_the_attempts_say() {
    for state in explored().iter().flat_map(|explored| &explored.states) {
        let job = &state.job;
        let any = |name| job.attempts.iter().any(|a| a.state.name() == name);
        let live = any(AttemptStateName::Starting) || any(AttemptStateName::Running);
        let expected = match (&job.slot, live, any(AttemptStateName::Unknown)) {
            (Slot::Filled { .. }, _, _) => JobState::Succeeded,
            (Slot::GivenUp(_), _, _) => JobState::Failed,
            (Slot::Cancelled, _, _) => JobState::Cancelled,
            (Slot::Open { .. }, true, _) => JobState::Running,
            (Slot::Open { .. }, false, true) => JobState::Unknown,
            (Slot::Open { .. }, false, false) => JobState::Queued,
        };
        assert_eq!(job.state(), expected, "{job:?}");
        let planned = matches!(job.slot, Slot::Open { plan: Some(_) });
        assert_eq!(planned, expected == JobState::Queued, "an open job without an open attempt has a plan: {job:?}");
    }
}

#[test]
fn a_change_touches_one_attempt_and_says_which() {
    in_every_change(|step, change| {
        let different = step.attempts(change).filter(|(before, after)| before != after).map(|(_, after)| after.id);
        let mut touched: Vec<Touched> = different.map(Touched::Updated).collect();
        touched.extend(change.job.attempts.iter().skip(step.before.attempts.len()).map(|a| Touched::Inserted(a.id)));
        assert!(touched.len() <= 1 && change.touched == touched.first().copied(), "{step:?}");
        let same = |a: &Job, b: &Job| (a.id, a.effects, a.deadline) == (b.id, b.effects, b.deadline);
        assert!(same(step.before, &change.job), "{step:?}");
        if change.verdict == Verdict::AlreadySo || change.verdict == Verdict::AlreadyWon {
            assert!(*step.before == change.job && change.notices.is_empty(), "{step:?}");
        }
    });
}

#[test]
fn r4_nothing_starts_beside_an_attempt_that_may_still_be_alive() {
    in_every_change(|step, change| {
        let Some(Touched::Inserted(_)) = change.touched else { return };
        for other in &step.before.attempts {
            let blocks = match other.state.name() {
                AttemptStateName::Starting | AttemptStateName::Unknown => true,
                AttemptStateName::Running => step.before.effects == Effects::Exclusive,
                AttemptStateName::Succeeded
                | AttemptStateName::Failed
                | AttemptStateName::Superseded
                | AttemptStateName::Cancelled
                | AttemptStateName::Abandoned => false,
            };
            assert!(!blocks, "{step:?}");
        }
    });
}

#[test]
fn r4_an_exclusive_job_never_has_two_open_attempts_and_no_job_two_starting_ones() {
    for state in explored().iter().flat_map(|explored| &explored.states) {
        let count = |is: fn(&AttemptState) -> bool| state.job.attempts.iter().filter(|a| is(&a.state)).count();
        assert!(count(|s| *s == AttemptState::Starting) <= 1, "{state:?}");
        assert!(state.job.effects == Effects::Racing || count(AttemptState::is_open) <= 1, "{state:?}");
    }
}

#[test]
fn r4_nothing_starts_in_a_closed_job_or_after_the_deadline() {
    in_every_change(|step, change| {
        if let Some(Touched::Inserted(_)) = change.touched {
            assert!(matches!(step.before.slot, Slot::Open { .. }), "{step:?}");
            assert!(step.before.deadline.is_none_or(|deadline| step.event.at < deadline), "{step:?}");
        }
    });
}

#[test]
fn r5_silence_makes_an_attempt_unknown_and_nothing_else() {
    in_every_change(|step, change| {
        let What::Silent { attempt, .. } = &step.event.what else { return };
        assert_eq!(change.job.attempt(*attempt).unwrap().state.name(), AttemptStateName::Unknown, "{step:?}");
        assert_eq!(change.job.version, step.before.version);
        assert_eq!(change.job.slot, step.before.slot);
    });
}

#[test]
fn r5_only_a_word_about_it_ends_an_attempt() {
    in_every_change(|step, change| {
        for (before, after) in step.attempts(change).filter(|(before, after)| before.state != after.state) {
            let about = match &step.event.what {
                What::Running { attempt, .. } | What::Handle { attempt, .. } | What::Silent { attempt, .. } => {
                    assert!(after.state.is_open(), "{step:?}");
                    attempt
                }
                What::Succeeded { attempt, .. }
                | What::Failed { attempt, .. }
                | What::Abandoned { attempt, .. }
                | What::CancelConfirmed { attempt, .. } => attempt,
                What::Start(_) | What::Cancel | What::Reopen { .. } | What::DeadlinePassed | What::Unproved { .. } => {
                    panic!("{step:?}")
                }
            };
            assert_eq!(*about, before.id, "{step:?}");
        }
    });
}

#[test]
fn r5_what_ended_an_unknown_attempt_is_on_record() {
    in_every_change(|step, change| {
        for (before, after) in step.attempts(change) {
            let was_unknown = before.state.name() == AttemptStateName::Unknown;
            if !before.state.is_open() || after.state.is_open() {
                continue;
            }
            assert_eq!(after.state.resolution().is_some(), was_unknown, "{step:?}");
            let noted =
                change.notices.iter().any(|n| matches!(n, Notice::Resolved { attempt, .. } if *attempt == after.id));
            assert_eq!(noted, was_unknown, "{step:?}");
        }
    });
}

#[test]
fn r5_a_decree_ends_unknown_attempts_only() {
    in_every_change(|step, _| {
        let (attempt, evidence) = match &step.event.what {
            What::Running { attempt, evidence }
            | What::Succeeded { attempt, evidence, .. }
            | What::Failed { attempt, evidence, .. }
            | What::Abandoned { attempt, evidence, .. }
            | What::CancelConfirmed { attempt, evidence, .. } => (attempt, evidence),
            What::Start(_)
            | What::Handle { .. }
            | What::Silent { .. }
            | What::Cancel
            | What::Reopen { .. }
            | What::DeadlinePassed
            | What::Unproved { .. } => return,
        };
        let state = step.before.attempt(*attempt).unwrap().state.name();
        assert!(!evidence.is_decree() || state == AttemptStateName::Unknown, "{step:?}");
        assert!(evidence.is_decree() || !matches!(step.event.what, What::Abandoned { .. }), "{step:?}");
    });
}

#[test]
fn r6_the_slot_is_written_once_and_never_changes() {
    in_every_change(|step, change| match &step.before.slot {
        Slot::Filled { .. } | Slot::Cancelled => assert_eq!(change.job.slot, step.before.slot, "{step:?}"),
        Slot::GivenUp(_) => {
            assert!(change.job.slot == step.before.slot || change.verdict == Verdict::Reopened, "{step:?}")
        }
        Slot::Open { .. } => {}
    });
}

#[test]
fn r6_closing_and_reopening_raise_the_version_by_one_and_nothing_else_does() {
    in_every_change(|step, change| {
        let closed_or_opened = discriminant(&step.before.slot) != discriminant(&change.job.slot);
        assert_eq!(change.job.version, step.before.version + u32::from(closed_or_opened), "{step:?}");
        if change.verdict == Verdict::Started {
            assert_eq!(change.job.version, step.before.version);
            assert_eq!(change.job.attempts.last().unwrap().version_read, step.before.version);
        }
    });
}

#[test]
fn r6_the_first_success_of_an_open_attempt_wins_whichever_started_first() {
    in_every_change(|step, change| {
        let What::Succeeded { attempt, .. } = &step.event.what else {
            return assert_ne!(change.verdict, Verdict::Won);
        };
        let before = step.before.attempt(*attempt).unwrap();
        let wins = before.state.is_open() && matches!(step.before.slot, Slot::Open { .. });
        assert_eq!(change.verdict == Verdict::Won, wins, "{step:?}");
        if wins {
            let slot = Slot::Filled { by: *attempt, result: result_of(*attempt).into() };
            assert_eq!(change.job.slot, slot);
            assert_eq!(before.version_read, step.before.version);
        }
    });
}

#[test]
fn r7_the_loser_leaves_nothing_but_a_record_of_the_race() {
    in_every_change(|step, change| {
        let What::Succeeded { attempt, .. } = &step.event.what else { return };
        if change.job.completed_by() == Some(*attempt) {
            return;
        }
        assert!(!format!("{:?}", change.job).contains(&result_of(*attempt)), "{step:?}");
        assert!(!format!("{:?}", change.notices).contains(&result_of(*attempt)), "{step:?}");
        let dropped = payload(*attempt).dropped();
        match &change.verdict {
            Verdict::Superseded { by } => {
                assert_eq!(*by, step.before.completed_by());
                let race = Notice::RaceLost { attempt: *attempt, winner: *by, dropped: Some(dropped) };
                assert!(change.notices.contains(&race) && race.kind() == "duplicate_effect", "{step:?}");
            }
            Verdict::TooLate(AttemptStateName::Superseded) => {
                assert!(change.notices.is_empty(), "told before: {step:?}")
            }
            Verdict::TooLate(state) => {
                let late = Notice::Late { attempt: *attempt, state: *state, word: LateWord::Succeeded(dropped) };
                assert_eq!(change.notices, [late], "{step:?}");
            }
            other => panic!("{other:?}: {step:?}"),
        }
    });
}

#[test]
fn r7_a_loser_that_failed_is_on_record_too() {
    in_every_change(|step, change| {
        let (What::Failed { attempt, .. } | What::Abandoned { attempt, .. }) = &step.event.what else { return };
        let Some(winner) = step.before.completed_by().filter(|_| change.touched.is_some()) else { return };
        let race = Notice::RaceLost { attempt: *attempt, winner: Some(winner), dropped: None };
        assert!(change.notices.contains(&race), "{step:?}");
        assert_eq!(change.verdict, Verdict::EndedAfterClose);
    });
}

#[test]
fn r8_an_attempt_that_has_ended_never_changes() {
    in_every_change(|step, change| {
        for (before, after) in step.attempts(change).filter(|(before, _)| !before.state.is_open()) {
            assert_eq!(before, after, "{step:?}");
        }
        if let Verdict::TooLate(_) = change.verdict {
            assert_eq!(*step.before, change.job, "{step:?}");
        }
    });
}

#[test]
fn r9_what_starts_by_itself_elsewhere_has_a_certificate() {
    for attempt in explored().iter().flat_map(|explored| &explored.states).flat_map(|state| &state.job.attempts) {
        assert!(attempt.by_hand || attempt.provider == attempt.primary || attempt.certificate.is_some(), "{attempt:?}");
    }
    in_every_change(|step, change| {
        if let Slot::Open { plan: Some(plan) } = &change.job.slot {
            assert!(
                plan.provider == plan.primary || plan.certificate.is_some(),
                "a plan that could never start: {step:?}"
            );
        }
    });
}

#[test]
fn r9_what_does_not_hold_any_more_is_not_planned_again_and_touches_no_attempt() {
    in_every_change(|step, change| {
        let What::Unproved { certificate, .. } = &step.event.what else { return };
        assert_eq!(step.before.attempts, change.job.attempts, "{step:?}");
        match &change.job.slot {
            Slot::Open { plan: Some(plan) } => {
                assert!(plan.certificate.is_none() || plan.certificate != *certificate, "{step:?}");
            }
            Slot::GivenUp(given_up) => assert_eq!(given_up.failover, Failover::NoVerifiedProvider, "{step:?}"),
            Slot::Open { plan: None } | Slot::Filled { .. } | Slot::Cancelled => panic!("{step:?}"),
        }
    });
}

#[test]
fn r9_a_hedge_starts_only_beside_what_was_seen() {
    in_every_change(|step, _| {
        let What::Start(Start { trigger: Trigger::Hedge { seen }, .. }) = &step.event.what else { return };
        assert_eq!(step.before.attempts.len(), *seen as usize, "{step:?}");
        assert!(step.before.attempts.iter().all(|a| !matches!(a.state, AttemptState::Unknown { .. })), "{step:?}");
    });
}

#[test]
fn r9_by_hand_a_provider_without_certificate_takes_force() {
    in_every_change(|step, change| {
        if let (What::Start(start), Verdict::Started) = (&step.event.what, &change.verdict) {
            let proved = start.provider == start.primary || start.certificate.is_some();
            assert!(proved || start.trigger == Trigger::Hand { force: true }, "{step:?}");
        }
    });
}

#[test]
fn r10_the_same_event_twice_is_the_same_as_once() {
    in_every_change(|step, change| {
        if let Ok(again) = decide(&change.job, step.event) {
            assert_eq!(again.job, change.job, "{step:?}");
            assert_eq!(again.touched, None, "{step:?}");
        }
    });
}

#[test]
fn r12_a_new_key_is_called_safe_only_when_nothing_can_have_happened() {
    for state in explored().iter().flat_map(|explored| &explored.states) {
        let job = &state.job;
        let nothing_happened = |attempt: &Attempt| match &attempt.state {
            AttemptState::Failed { failure, .. } => failure.class.certainly_did_nothing(),
            AttemptState::Cancelled { never_sent, .. } => *never_sent,
            AttemptState::Starting
            | AttemptState::Running
            | AttemptState::Unknown { .. }
            | AttemptState::Succeeded { .. }
            | AttemptState::Superseded { .. }
            | AttemptState::Abandoned { .. } => false,
        };
        let safe =
            matches!(job.state(), JobState::Failed | JobState::Cancelled) && job.attempts.iter().all(nothing_happened);
        assert_eq!(job.is_safe_to_ask_again(), safe, "{job:?}");
    }
}

#[test]
fn from_everywhere_the_job_and_all_its_attempts_can_end_without_a_cancel() {
    for explored in explored() {
        let mut backwards: Vec<Vec<usize>> = vec![Vec::new(); explored.states.len()];
        for (from, to) in &explored.steps_without_cancel {
            backwards[*to].push(*from);
        }
        let ended =
            |state: &State| state.job.state().is_terminal() && state.job.attempts.iter().all(|a| !a.state.is_open());
        let mut open: Vec<usize> = (0..explored.states.len()).filter(|i| ended(&explored.states[*i])).collect();
        let mut reaches_an_end: HashSet<usize> = open.iter().copied().collect();
        while let Some(state) = open.pop() {
            open.extend(backwards[state].iter().copied().filter(|from| reaches_an_end.insert(*from)));
        }
        let stuck = (0..explored.states.len()).find(|i| !reaches_an_end.contains(i));
        assert!(stuck.is_none(), "{}: {:?}", explored.world.name, stuck.map(|i| &explored.states[i]));
    }
}

impl std::fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#?}\nmeets {:#?}\nand gives {:#?}", self.before, self.event, self.answer)
    }
}
