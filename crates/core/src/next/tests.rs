//! What follows a failure, told through whole jobs: each test plays attempts through `decide`.

use std::sync::Arc;

use super::{LONGEST_BACKOFF_MS, backoff_ms};
use crate::*;

use FailureClass::{BrokenContract, FailedThere, Invalid, NotExecuted, NotSent, Refused};

const T: Millis = 1_000_000;

/// A job on its way, with the policy of its task.
struct Story {
    job: Job,
    policy: Policy,
    jitter: u16,
    at: Millis,
}

fn candidate(name: &str, certified: bool) -> Candidate {
    Candidate { provider: name.into(), certificate: certified.then_some(CertificateId(7)), refuses: false }
}

impl Story {
    /// An exclusive job whose task has these candidates, two tries at each, four attempts, and a
    /// backoff of a second with the greatest jitter.
    fn new(candidates: &[Candidate]) -> Story {
        let policy = Policy { candidates: candidates.to_vec(), tries: 2, max_attempts: 4, backoff_ms: 1000 };
        let plan = opening(&policy, T, None).expect("there is a candidate");
        Story { job: Job::new(JobId(1), Effects::Exclusive, None, plan), policy, jitter: 1000, at: T }
    }

    fn racing(mut self) -> Story {
        self.job.effects = Effects::Racing;
        self
    }

    fn apply(&mut self, what: What) -> Verdict {
        let change = decide(&self.job, &Event { at: self.at, what }).expect("the story is legal");
        self.job = change.job;
        assert_eq!(self.job.unsound(), None);
        change.verdict
    }

    fn start(&mut self, provider: &str, trigger: Trigger) -> AttemptId {
        let certificate = self.policy.candidates.iter().find(|c| &*c.provider == provider).and_then(|c| c.certificate);
        self.start_on(provider, certificate, trigger)
    }

    fn start_on(&mut self, provider: &str, certificate: Option<CertificateId>, trigger: Trigger) -> AttemptId {
        let attempt = AttemptId(self.job.attempts.len() as u128 + 1);
        let primary = self.policy.candidates[0].provider.clone();
        let start = Start { attempt, provider: provider.into(), primary, certificate, trigger, node: NodeId(1) };
        self.apply(What::Start(start));
        attempt
    }

    fn hedge(&mut self, provider: &str) -> AttemptId {
        let seen = self.job.attempts.len() as u32;
        self.start(provider, Trigger::Hedge { seen })
    }

    /// Starts what is planned, when it is due.
    fn start_planned(&mut self) -> AttemptId {
        let Slot::Open { plan: Some(plan) } = self.job.slot.clone() else {
            panic!("nothing is planned: {:?}", self.job)
        };
        self.at = self.at.max(plan.due_at);
        self.start_on(&plan.provider, plan.certificate, Trigger::Plan)
    }

    fn fail(&mut self, attempt: AttemptId, class: FailureClass) -> Next {
        self.fail_with(attempt, class.into())
    }

    fn fail_with(&mut self, attempt: AttemptId, failure: Failure) -> Next {
        let follow = Follow { policy: Arc::new(self.policy.clone()), jitter: self.jitter };
        match self.apply(What::Failed { attempt, failure, seen: Seen::default(), evidence: Evidence::Answer, follow }) {
            Verdict::Ended(next) => next,
            verdict => panic!("{verdict:?}"),
        }
    }

    /// Starts what is planned and lets it fail: where the job goes then, and after how long.
    fn try_once(&mut self, class: FailureClass) -> Option<(String, Millis)> {
        let attempt = self.start_planned();
        match self.fail(attempt, class) {
            Next::Retry(plan) => Some((plan.provider.to_string(), plan.due_at - self.at)),
            Next::Wait | Next::GiveUp(_) => None,
        }
    }

    /// The plan stands on a certificate that does not hold: what the job does instead.
    fn unproved(&mut self) -> Next {
        let Slot::Open { plan: Some(plan) } = self.job.slot.clone() else { panic!("nothing is planned") };
        let follow = Follow { policy: Arc::new(self.policy.clone()), jitter: self.jitter };
        match self.apply(What::Unproved { certificate: plan.certificate, follow }) {
            Verdict::Replanned(next) => next,
            verdict => panic!("{verdict:?}"),
        }
    }

    /// An operator's word on an attempt that fell silent.
    fn abandon(&mut self, attempt: AttemptId) -> Next {
        self.apply(What::Silent { attempt, cause: Cause::Timeout });
        let follow = Follow { policy: Arc::new(self.policy.clone()), jitter: self.jitter };
        match self.apply(What::Abandoned { attempt, evidence: Evidence::Operator { reason: "gone".into() }, follow }) {
            Verdict::Ended(next) => next,
            verdict => panic!("{verdict:?}"),
        }
    }

    /// A plan to go to that provider, without a certificate, so much later.
    fn plan(&self, provider: &str, after_ms: Millis) -> Plan {
        let primary = self.policy.candidates[0].provider.clone();
        Plan { provider: provider.into(), primary, certificate: None, due_at: self.at.saturating_add(after_ms) }
    }

    fn given_up(&self) -> &GivenUp {
        match &self.job.slot {
            Slot::GivenUp(given_up) => given_up,
            other => panic!("{other:?}"),
        }
    }
}

fn to(provider: &str, after_ms: Millis) -> Option<(String, Millis)> {
    Some((provider.to_owned(), after_ms))
}

const A: &str = "main";
const B: &str = "backup";
const C: &str = "third";

#[test]
fn a_certain_failure_is_tried_again_until_the_tries_are_used_up() {
    for class in [NotSent, Refused, FailedThere, BrokenContract] {
        let mut story = Story::new(&[candidate(A, false)]);
        assert_eq!(story.try_once(class), to(A, 1000), "{class:?}");
        assert_eq!(story.try_once(class), None);
        let end = story.given_up();
        assert_eq!((end.class, end.failover), (GiveUpClass::Failure(class), Failover::NotApplicable));
        assert_eq!(story.job.version, 1);
    }
}

#[test]
fn a_wrong_request_is_neither_tried_again_nor_elsewhere() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    assert_eq!(story.try_once(Invalid), None);
    assert_eq!(story.given_up().class, GiveUpClass::Failure(Invalid));
}

#[test]
fn r9_after_the_tries_the_next_provider_with_a_certificate_takes_over_at_once() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, false), candidate(C, true)]);
    assert_eq!(story.try_once(Refused), to(A, 1000));
    assert_eq!(story.try_once(Refused), to(C, 0));
    assert_eq!(story.try_once(Refused), to(C, 1000));
    let Slot::Open { plan: Some(plan) } = &story.job.slot else { panic!() };
    assert_eq!((&*plan.primary, plan.certificate), (A, Some(CertificateId(7))));
    assert_eq!(story.try_once(Refused), None);
    assert_eq!(
        story.given_up().failover,
        Failover::NotApplicable,
        "all that were allowed have been asked: four attempts"
    );
}

#[test]
fn r9_without_a_certificate_the_job_fails_and_says_so() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, false)]);
    story.try_once(Refused);
    assert_eq!(story.try_once(FailedThere), None);
    let end = story.given_up();
    assert_eq!((end.class, end.failover), (GiveUpClass::Failure(FailedThere), Failover::NoVerifiedProvider));
}

#[test]
fn r9_a_provider_whose_certificate_was_suspended_meanwhile_is_not_tried_again() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    story.policy.tries = 1;
    assert_eq!(story.try_once(Refused), to(B, 0));
    story.policy = Policy { tries: 2, candidates: vec![candidate(A, false), candidate(B, false)], ..story.policy };
    let attempt = story.start_planned();
    assert_eq!(story.fail(attempt, BrokenContract), Next::Retry(story.plan(A, 1000)), "the first has a try left");
    let last = story.start_planned();
    assert_eq!(story.fail(last, Refused), Next::GiveUp(Failover::NoVerifiedProvider));
}

#[test]
fn backoff_doubles_up_to_a_minute() {
    let whole: Vec<u64> = (0..10).map(|tries| backoff_ms(500, tries, 1000)).collect();
    assert_eq!(whole, [0, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    assert_eq!(backoff_ms(u64::MAX, u32::MAX, u16::MAX), LONGEST_BACKOFF_MS);
    assert_eq!(backoff_ms(0, 5, 1000), 0);
}

#[test]
fn jitter_takes_away_at_most_half() {
    for tries in 1..12 {
        let whole = backoff_ms(500, tries, 1000);
        assert_eq!(backoff_ms(500, tries, 0), whole / 2);
        let spread: Vec<u64> = (0..=1000).map(|jitter| backoff_ms(500, tries, jitter)).collect();
        assert!(spread.is_sorted() && spread.iter().all(|delay| (whole / 2..=whole).contains(delay)));
        assert_eq!(backoff_ms(500, tries, u16::MAX), whole);
    }
}

#[test]
fn the_delay_that_the_provider_names_wins_even_over_the_minute() {
    for asked_ms in [0, 1, 3_600_000] {
        let mut story = Story::new(&[candidate(A, false)]);
        let attempt = story.start_planned();
        let failure = Failure { retry_after_ms: Some(asked_ms), ..Failure::from(Refused) };
        assert_eq!(story.fail_with(attempt, failure), Next::Retry(story.plan(A, asked_ms as Millis)));
        assert_eq!(story.job.attempts[0].failure().unwrap().retry_after_ms, None, "used once, not kept");
    }
}

#[test]
fn the_delay_that_one_provider_names_does_not_bind_another() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    story.policy.tries = 1;
    let attempt = story.start_planned();
    let failure = Failure { retry_after_ms: Some(60_000), ..Failure::from(Refused) };
    assert_eq!(
        story.fail_with(attempt, failure),
        Next::Retry(Plan { certificate: Some(CertificateId(7)), ..story.plan(B, 0) })
    );
}

#[test]
fn what_never_happened_uses_up_no_try_and_waits_for_nothing() {
    let mut story = Story::new(&[candidate(A, false)]);
    story.policy.max_attempts = 9;
    for _ in 0..3 {
        assert_eq!(story.try_once(NotExecuted), to(A, 0));
        let attempt = story.start_planned();
        assert_eq!(story.abandon(attempt), Next::Retry(story.plan(A, 0)));
    }
    assert_eq!(story.try_once(Refused), to(A, 1000), "the first real try");
    assert_eq!(story.try_once(Refused), None);
}

#[test]
fn the_attempts_of_a_job_are_limited_whatever_they_came_to() {
    for class in [Refused, NotExecuted] {
        let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
        story.policy = Policy { tries: 9, max_attempts: 3, ..story.policy };
        assert!(story.try_once(class).is_some());
        assert!(story.try_once(class).is_some());
        assert_eq!(story.try_once(class), None, "{class:?}");
        assert_eq!(story.job.attempts.len(), 3);
    }
}

#[test]
fn an_attempt_by_hand_is_none_of_those_that_the_policy_may_start() {
    let mut story = Story::new(&[candidate(A, false)]);
    story.policy = Policy { tries: 9, max_attempts: 2, ..story.policy };
    assert!(story.try_once(Refused).is_some());
    let by_hand = story.start(A, Trigger::Hand { force: false });
    assert!(matches!(story.fail(by_hand, Refused), Next::Retry(_)));
    assert_eq!(story.try_once(Refused), None);
}

#[test]
fn an_abandoned_last_attempt_fails_the_job_as_abandoned() {
    let mut story = Story::new(&[candidate(A, false)]);
    story.policy.max_attempts = 1;
    let attempt = story.start_planned();
    assert_eq!(story.abandon(attempt), Next::GiveUp(Failover::NotApplicable));
    assert_eq!(story.given_up().class, GiveUpClass::Abandoned);
    assert!(!story.job.is_safe_to_ask_again(), "nobody knows what it did");
}

#[test]
fn nothing_is_planned_past_the_deadline() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    story.job.deadline = Some(T + 1000);
    assert_eq!(story.try_once(Refused), None, "the retry would be due at the deadline");
    assert_eq!(story.given_up().class, GiveUpClass::Failure(Refused));
    let mut story = Story::new(&[candidate(A, false)]);
    story.job.deadline = Some(T + 1001);
    assert_eq!(story.try_once(Refused), to(A, 1000));
}

#[test]
fn a_delay_without_end_does_not_overflow() {
    let mut story = Story::new(&[candidate(A, false)]);
    let attempt = story.start_planned();
    let failure = Failure { retry_after_ms: Some(u64::MAX), ..Failure::from(Refused) };
    assert!(matches!(story.fail_with(attempt, failure), Next::Retry(plan) if plan.due_at == Millis::MAX));
}

#[test]
fn while_another_attempt_is_open_nothing_follows_yet() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]).racing();
    let first = story.start_planned();
    story.apply(What::Running { attempt: first, evidence: Evidence::Answer });
    let second = story.hedge(B);
    assert_eq!(story.fail(first, Refused), Next::Wait);
    assert_eq!(story.job.state(), JobState::Running);
    assert_eq!(
        story.fail(second, Refused),
        Next::Retry(Plan { certificate: Some(CertificateId(7)), ..story.plan(B, 1000) })
    );
}

#[test]
fn a_wrong_request_ends_a_race_when_the_other_attempt_has_ended_too() {
    for other in [Refused, NotSent, NotExecuted, FailedThere, BrokenContract] {
        let mut story = Story::new(&[candidate(A, false), candidate(B, true)]).racing();
        let first = story.start_planned();
        story.apply(What::Running { attempt: first, evidence: Evidence::Answer });
        let second = story.hedge(B);
        assert_eq!(story.fail(second, Invalid), Next::Wait, "the first may still win");
        assert_eq!(story.fail(first, other), Next::GiveUp(Failover::NotApplicable));
        assert_eq!(story.given_up().class, GiveUpClass::Failure(Invalid), "the job says why, not what ended last");
    }
}

#[test]
fn a_hedge_does_not_get_more_tries_than_the_task_allows() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]).racing();
    story.policy.tries = 1;
    let first = story.start_planned();
    story.apply(What::Running { attempt: first, evidence: Evidence::Answer });
    let hedge = story.hedge(B);
    assert_eq!(story.fail(hedge, Refused), Next::Wait);
    assert_eq!(story.fail(first, Refused), Next::GiveUp(Failover::NotApplicable));
}

#[test]
fn tries_left_at_an_earlier_provider_are_not_forgotten() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]).racing();
    let first = story.start_planned();
    story.apply(What::Running { attempt: first, evidence: Evidence::Answer });
    let hedge = story.hedge(B);
    assert_eq!(story.fail(first, Refused), Next::Wait);
    assert!(matches!(story.fail(hedge, Refused), Next::Retry(plan) if &*plan.provider == B));
    assert_eq!(story.try_once(Refused), to(A, 1000), "the first was tried once of twice");
}

#[test]
fn after_a_provider_that_the_task_does_not_name_the_first_is_next() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    let foreign = story.start("elsewhere", Trigger::Hand { force: true });
    assert_eq!(story.fail(foreign, Refused), Next::Retry(story.plan(A, 0)));
}

#[test]
fn a_task_that_is_no_longer_configured_allows_nothing_more() {
    let mut story = Story::new(&[candidate(A, false)]);
    let attempt = story.start_planned();
    story.policy = Policy::nothing_more();
    assert_eq!(story.fail(attempt, Refused), Next::GiveUp(Failover::NotApplicable));
}

#[test]
fn a_reopened_job_has_all_its_tries_again() {
    let mut story = Story::new(&[candidate(A, false)]);
    assert!(story.try_once(Refused).is_some());
    assert_eq!(story.try_once(Refused), None);
    story.apply(What::Reopen { provider: A.into() });
    assert_eq!((story.job.state(), story.job.version), (JobState::Queued, 2));
    assert_eq!(story.try_once(Refused), to(A, 1000));
    assert_eq!(story.try_once(Refused), None);
    assert_eq!(story.job.attempts.len(), 4);
}

#[test]
fn a_wrong_request_of_an_earlier_life_does_not_end_the_new_one() {
    let mut story = Story::new(&[candidate(A, false)]);
    assert_eq!(story.try_once(Invalid), None);
    story.apply(What::Reopen { provider: A.into() });
    assert_eq!(story.try_once(Refused), to(A, 1000));
}

#[test]
fn the_first_plan_waits_for_run_at() {
    let policy = Story::new(&[candidate(A, false), candidate(B, true)]).policy;
    let due = |run_at| opening(&policy, T, run_at).map(|plan| (plan.provider.to_string(), plan.due_at - T));
    assert_eq!((due(None), due(Some(T + 5)), due(Some(T - 5))), (to(A, 0), to(A, 5), to(A, 0)));
    assert_eq!(opening(&Policy::nothing_more(), T, None), None);
}

/// The provider has lately refused everything.
fn refusing(name: &str, certified: bool) -> Candidate {
    Candidate { refuses: true, ..candidate(name, certified) }
}

#[test]
fn a_provider_that_refuses_everything_is_passed_over_for_one_that_is_proved() {
    let opens_at = |candidates: &[Candidate]| Story::new(candidates).job.slot;
    let planned = |provider: &str, certificate| {
        let plan = Plan { provider: provider.into(), primary: A.into(), certificate, due_at: T };
        Slot::Open { plan: Some(plan) }
    };
    let proved = Some(CertificateId(7));
    assert_eq!(opens_at(&[refusing(A, false), candidate(B, false), candidate(C, true)]), planned(C, proved));
    assert_eq!(opens_at(&[refusing(A, false), refusing(B, true)]), planned(A, None), "nowhere else to go");
    assert_eq!(opens_at(&[refusing(A, false), candidate(B, false)]), planned(A, None), "R9 stands");
    assert_eq!(opens_at(&[candidate(A, false), candidate(B, true)]), planned(A, None));
}

#[test]
fn who_refuses_now_says_nothing_about_a_job_that_starts_later() {
    let policy = Story::new(&[refusing(A, false), candidate(B, true)]).policy;
    assert_eq!(&*opening(&policy, T, Some(T + 1)).unwrap().provider, A);
    assert_eq!(&*opening(&policy, T, Some(T)).unwrap().provider, B);
}

#[test]
fn tries_left_at_a_provider_that_refuses_everything_are_spent_elsewhere_first() {
    let mut story = Story::new(&[refusing(A, false), candidate(B, true)]);
    assert_eq!(story.try_once(Refused), to(B, 1000), "the opening went to the one that is proved");
    story.policy.candidates[0] = candidate(A, false);
    assert_eq!(story.try_once(Refused), to(A, 0));
    story.policy.candidates = vec![refusing(A, false), refusing(B, true)];
    assert_eq!(story.try_once(Refused), to(A, 1000), "all refuse: it goes where it would have gone");
}

#[test]
fn r9_a_plan_that_is_unproved_goes_to_the_next_that_is_proved() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true), candidate(C, true)]);
    story.policy.tries = 1;
    story.policy.candidates[2].certificate = Some(CertificateId(8));
    assert_eq!(story.try_once(Refused), to(B, 0));
    story.policy.candidates[1].certificate = None;
    assert_eq!(story.unproved(), Next::Retry(Plan { certificate: Some(CertificateId(8)), ..story.plan(C, 0) }));
}

#[test]
fn r9_a_plan_that_is_unproved_ends_the_job_with_its_last_failure_when_nothing_else_is_proved() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    story.policy.tries = 1;
    assert_eq!(story.try_once(FailedThere), to(B, 0));
    // What was read before it was suspended may still list it.
    assert_eq!(story.unproved(), Next::GiveUp(Failover::NoVerifiedProvider));
    let end = story.given_up();
    assert_eq!((end.class, end.failover), (GiveUpClass::Failure(FailedThere), Failover::NoVerifiedProvider));
}

#[test]
fn r9_a_plan_that_is_unproved_takes_the_certificate_that_came_in_its_place() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    story.policy.tries = 1;
    assert_eq!(story.try_once(Refused), to(B, 0));
    story.policy.candidates[1].certificate = Some(CertificateId(9));
    assert_eq!(story.unproved(), Next::Retry(Plan { certificate: Some(CertificateId(9)), ..story.plan(B, 0) }));
}

#[test]
fn r9_a_plan_that_is_unproved_need_not_be_due_and_keeps_the_pause_it_makes() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true), candidate(C, false)]);
    story.policy.tries = 2;
    let pauses: Vec<_> = (0..3).map(|_| story.try_once(Refused).unwrap()).collect();
    let (to, pause) = &pauses[2];
    assert!(to == B && *pause > 0, "{pauses:?}");
    story.policy.candidates[1].certificate = Some(CertificateId(9));
    story.at += 1;
    let same_pause = story.plan(B, pause - 1);
    assert_eq!(story.unproved(), Next::Retry(Plan { certificate: Some(CertificateId(9)), ..same_pause }));
    story.policy.candidates[1].certificate = None;
    story.policy.candidates[2].certificate = Some(CertificateId(8));
    assert_eq!(story.unproved(), Next::Retry(Plan { certificate: Some(CertificateId(8)), ..story.plan(C, 0) }));
}

#[test]
fn r9_a_first_plan_that_is_unproved_falls_back_to_the_provider_that_needs_no_certificate() {
    for policy in [None, Some(Policy::nothing_more())] {
        let mut story = Story::new(&[refusing(A, false), candidate(B, true)]);
        let primary = story.plan(A, 0);
        story.policy = policy.unwrap_or(story.policy);
        assert_eq!(story.unproved(), Next::Retry(primary));
    }
}

#[test]
fn what_is_said_of_another_plan_changes_nothing() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]);
    let unproved = |certificate| Event {
        at: T,
        what: What::Unproved { certificate, follow: Follow { policy: Arc::new(Policy::nothing_more()), jitter: 0 } },
    };
    assert_eq!(decide(&story.job, &unproved(None)), Err(Illegal::NotDue), "the first needs none");
    story.policy.tries = 1;
    assert_eq!(story.try_once(Refused), to(B, 0));
    assert_eq!(decide(&story.job, &unproved(Some(CertificateId(8)))), Err(Illegal::NotDue));
    let attempt = story.start_planned();
    assert_eq!(decide(&story.job, &unproved(Some(CertificateId(7)))), Err(Illegal::NotDue), "it has started");
    story.apply(What::Silent { attempt, cause: Cause::Timeout });
    assert_eq!(decide(&story.job, &unproved(Some(CertificateId(7)))), Err(Illegal::NotDue), "nobody knows");
    story.apply(What::Cancel);
    assert_eq!(decide(&story.job, &unproved(Some(CertificateId(7)))), Err(Illegal::JobClosed(JobState::Cancelled)));
}

#[test]
fn a_hedge_goes_to_the_next_in_order_that_is_proved_has_tries_and_does_not_refuse() {
    let hedged = |candidates: &[Candidate]| {
        let mut story = Story::new(candidates).racing();
        let first = story.start_planned();
        assert_eq!(hedges(&story.job, &story.policy), Vec::<&Candidate>::new(), "it may not have left yet");
        story.apply(What::Running { attempt: first, evidence: Evidence::Answer });
        hedges(&story.job, &story.policy).iter().map(|c| c.provider.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(hedged(&[candidate(A, false), candidate(B, true), candidate(C, true)]), [B, C]);
    assert_eq!(hedged(&[candidate(A, false), candidate(B, false), candidate(C, true)]), [C]);
    assert_eq!(hedged(&[candidate(A, false), refusing(B, true), candidate(C, true)]), [C]);
    assert_eq!(hedged(&[candidate(A, false)]), [""; 0]);
}

#[test]
fn a_hedge_counts_for_the_limits_and_comes_back_to_the_first() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true)]).racing();
    let by_hand = story.start(B, Trigger::Hand { force: false });
    story.apply(What::Running { attempt: by_hand, evidence: Evidence::Answer });
    let names =
        |story: &Story| hedges(&story.job, &story.policy).iter().map(|c| c.provider.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&story), [A]);
    let hedge = story.hedge(A);
    story.apply(What::Running { attempt: hedge, evidence: Evidence::Answer });
    assert_eq!(names(&story), [""; 0], "both have an open attempt");
    assert_eq!(story.fail(by_hand, Refused), Next::Wait);
    assert_eq!(names(&story), [B], "what failed quickly may be tried beside it again");
    story.policy.max_attempts = 1;
    assert_eq!(names(&story), [""; 0]);
    story.policy.max_attempts = 4;
    story.apply(What::Silent { attempt: hedge, cause: Cause::Timeout });
    assert_eq!(names(&story), [""; 0], "nothing starts beside an unknown attempt");
}

#[test]
fn a_wrong_request_is_not_sent_elsewhere_either() {
    let mut story = Story::new(&[candidate(A, false), candidate(B, true), candidate(C, true)]).racing();
    let first = story.start_planned();
    story.apply(What::Running { attempt: first, evidence: Evidence::Answer });
    let hedge = story.hedge(B);
    assert_eq!(story.fail(hedge, Invalid), Next::Wait);
    assert_eq!(hedges(&story.job, &story.policy), Vec::<&Candidate>::new());
}
