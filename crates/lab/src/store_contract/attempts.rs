//! R4 to R9: attempts, how they end, and what that makes of the job.

use std::sync::Arc;

use onejob::store::{Applied, Store, Submit};
use onejob_core::{
    AttemptId, AttemptState, AttemptStateName, Candidate, Effects, Event, Evidence, Failover, Failure, FailureClass,
    Follow, GiveUpClass, Illegal, JobId, JobState, Next, Plan, Policy, ResolvedBy, Seen, Slot, Start, Trigger, Usage,
    Verdict, What,
};

use super::ground::{
    Ground, NOW, does, failed, job, kinds, made, notice, payload, plan, refused, running, silent, succeeded,
};

pub async fn a_submit_with_a_slot_starts_in_the_same_commit(ground: &Ground) {
    let store = ground.store();
    let before = store.work();
    let record = ground.starting(&store, "click").await;
    assert_eq!(store.work().commits, before.commits + 1);
    assert_eq!(record.job.state(), JobState::Running);
    assert_eq!(record.job.attempts[0].state, AttemptState::Starting);
    assert_eq!(job(&store, record.job.id).await, record);
}

pub async fn a_submit_that_is_not_due_yet_waits_in_line(ground: &Ground) {
    let store = ground.store();
    let later = Submit { run_at: Some(NOW + 60), plan: plan("main", NOW + 60), ..ground.started_wish("ann", "later") };
    let record = made(&store, later).await;
    assert_eq!((record.job.state(), record.job.attempts.len()), (JobState::Queued, 0));
    assert_eq!(job(&store, record.job.id).await, record);
}

pub async fn r4_no_attempt_starts_beside_an_open_one(ground: &Ground) {
    let store = ground.store();
    let record = ground.starting(&store, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    let states = [AttemptStateName::Starting, AttemptStateName::Running, AttemptStateName::Unknown];
    for state in states {
        for trigger in [Trigger::Plan, Trigger::Hand { force: true }] {
            let why = refused(&store, id, What::Start(ground.start("main", trigger))).await;
            assert_eq!(why, Illegal::AttemptInFlight { attempt, state });
        }
        match state {
            AttemptStateName::Starting => does(&store, id, running(attempt)).await,
            _ => does(&store, id, silent(attempt)).await,
        };
    }
    assert_eq!(job(&store, id).await.job.attempts.len(), 1);
}

pub async fn r4_a_racing_task_gets_a_second_attempt_beside_a_running_one_only(ground: &Ground) {
    let store = ground.store();
    let record = made(&store, Submit { effects: Effects::Racing, ..ground.started_wish("ann", "click") }).await;
    let (id, first) = (record.job.id, record.job.attempts[0].id);
    let hand = Trigger::Hand { force: false };
    let why = refused(&store, id, What::Start(ground.start("main", hand))).await;
    assert_eq!(why, Illegal::AttemptInFlight { attempt: first, state: AttemptStateName::Starting });
    does(&store, id, running(first)).await;
    let start = ground.start("main", hand);
    let second = start.attempt;
    assert_eq!(does(&store, id, What::Start(start)).await.1, Verdict::Started);
    does(&store, id, running(second)).await;
    // Both may fall silent; then nothing starts until evidence comes.
    does(&store, id, silent(first)).await;
    let (record, _) = does(&store, id, silent(second)).await;
    assert_eq!(record.job.state(), JobState::Unknown);
    let why = refused(&store, id, What::Start(ground.start("main", hand))).await;
    assert!(matches!(why, Illegal::AttemptInFlight { state: AttemptStateName::Unknown, .. }));
    assert_eq!(job(&store, id).await, record);
}

pub async fn r5_silence_is_unknown_and_blocks(ground: &Ground) {
    let store = ground.store();
    let record = ground.starting(&store, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    let (record, verdict) = does(&store, id, silent(attempt)).await;
    assert_eq!((verdict, record.job.state()), (Verdict::Unknown, JobState::Unknown));
    assert_eq!(kinds(&store, id).await, ["unknown"]);
    assert_eq!(notice(&store, id, "unknown").await.attempt, Some(attempt));
    // The late answer is evidence and wins.
    let (record, verdict) = does(&store, id, succeeded(attempt, "\"late\"")).await;
    assert_eq!((verdict, record.job.state()), (Verdict::Won, JobState::Succeeded));
    assert_eq!(record.job.attempts[0].state.resolution().unwrap().by, ResolvedBy::LateAnswer);
    assert_eq!(kinds(&store, id).await, ["unknown", "resolution"]);
    assert_eq!(job(&store, id).await, record);
}

pub async fn r6_the_first_to_finish_wins_and_repeats_itself(ground: &Ground) {
    let store = ground.store();
    let (id, first, second) = ground.racing(&store, "click").await;
    let (record, verdict) = does(&store, id, succeeded(second, "\"second\"")).await;
    assert_eq!(verdict, Verdict::Won);
    assert_eq!(record.job.slot, Slot::Filled { by: second, result: "\"second\"".into() });
    assert_eq!(does(&store, id, succeeded(second, "\"other\"")).await.1, Verdict::AlreadyWon);
    let (_, verdict) = does(&store, id, succeeded(first, "\"first\"")).await;
    assert_eq!(verdict, Verdict::Superseded { by: Some(second) });
    let read = job(&store, id).await;
    assert_eq!((&read.job.slot, read.job.version), (&record.job.slot, 1));
}

pub async fn r7_the_loser_is_dropped_and_noted_without_its_result(ground: &Ground) {
    let store = ground.store();
    let (id, first, second) = ground.racing(&store, "click").await;
    does(&store, id, succeeded(second, "\"winner\"")).await;
    does(&store, id, succeeded(first, "\"loser-result\"")).await;
    let read = job(&store, id).await;
    assert!(!format!("{read:?}").contains("loser-result"));
    let noted = notice(&store, id, "duplicate_effect").await;
    assert_eq!(noted.attempt, Some(first));
    assert!(!noted.detail.contains("loser-result"));
    let detail: serde_json::Value = serde_json::from_str(&noted.detail).unwrap();
    assert_eq!(detail["dropped"]["bytes"], 14);
    assert_eq!(detail["winner"], onejob::id::attempt_text(second));
}

pub async fn r8_a_late_answer_to_an_ended_attempt_is_only_noted(ground: &Ground) {
    let store = ground.store();
    let record = ground.starting(&store, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    does(&store, id, silent(attempt)).await;
    let reason = Evidence::Operator { reason: "nobody answers".into() };
    let follow = Follow { policy: Arc::new(Policy::nothing_more()), jitter: 0 };
    does(&store, id, What::Abandoned { attempt, evidence: reason, follow }).await;
    let before = job(&store, id).await;
    let (after, verdict) = does(&store, id, succeeded(attempt, "\"too late\"")).await;
    assert_eq!(verdict, Verdict::TooLate(AttemptStateName::Abandoned));
    assert_eq!((&after, &job(&store, id).await), (&before, &before));
    assert_eq!(kinds(&store, id).await, ["unknown", "resolution", "duplicate_effect"]);
    assert_eq!(refused(&store, id, running(attempt)).await, Illegal::AttemptClosed(AttemptStateName::Abandoned));
}

pub async fn r9_no_attempt_goes_elsewhere_without_a_certificate(ground: &Ground) {
    let store = ground.store();
    let elsewhere = Submit { plan: plan("backup", NOW), ..ground.wish("ann", "click") };
    let id = made(&store, elsewhere).await.job.id;
    let why = refused(&store, id, What::Start(ground.start("backup", Trigger::Plan))).await;
    assert_eq!(why, Illegal::NotVerified { provider: "backup".into() });
    let proof = ground.certify(&store, "backup").await;
    let start = Start { certificate: Some(proof), ..ground.start("backup", Trigger::Plan) };
    let (record, verdict) = does(&store, id, What::Start(start)).await;
    assert_eq!((verdict, record.job.attempts[0].certificate), (Verdict::Started, Some(proof)));
    assert_eq!(job(&store, id).await, record);
    // A person may, and it is written down that it was one.
    let id = made(&store, ground.wish("ann", "by hand")).await.job.id;
    let (record, _) = does(&store, id, What::Start(ground.start("backup", Trigger::Hand { force: true }))).await;
    assert!(record.job.attempts[0].by_hand);
    assert_eq!(job(&store, id).await, record);
}

pub async fn every_state_of_an_attempt_is_kept_whole(ground: &Ground) {
    let store = ground.store();
    let seen = Seen { model: Some("m-1".into()), usage: Some(Usage { input_tokens: Some(3), output_tokens: None }) };
    let lookup = Evidence::Lookup;
    let nothing_more = || Follow { policy: Arc::new(Policy::nothing_more()), jitter: 0 };
    let last: Vec<Box<dyn Fn(AttemptId) -> Vec<What>>> = vec![
        Box::new(|_| vec![]),
        Box::new(|a| vec![running(a)]),
        Box::new(|attempt| vec![What::Handle { attempt, handle: "h-1".into() }]),
        Box::new(|a| vec![silent(a)]),
        Box::new(|a| vec![silent(a), What::Handle { attempt: a, handle: "h-1".into() }]),
        Box::new(|attempt| {
            let (result, seen) = (payload("{\"a\":1}"), seen.clone());
            vec![What::Succeeded { attempt, result, seen, evidence: Evidence::Callback }]
        }),
        Box::new(|attempt| {
            let failure = Failure {
                class: FailureClass::Refused,
                status: Some(429),
                message: "slow down".into(),
                retry_after_ms: Some(5),
            };
            let (seen, evidence) = (seen.clone(), lookup.clone());
            vec![silent(attempt), What::Failed { attempt, failure, seen, evidence, follow: nothing_more() }]
        }),
        Box::new(|a| vec![What::Cancel, succeeded(a, "1")]),
        Box::new(|attempt| {
            let evidence = Evidence::Answer;
            vec![What::Cancel, What::CancelConfirmed { attempt, never_sent: true, evidence }]
        }),
        Box::new(|attempt| {
            let evidence = Evidence::Policy { reason: "abandon_after".into() };
            vec![silent(attempt), What::Abandoned { attempt, evidence, follow: nothing_more() }]
        }),
    ];
    for (number, steps) in last.iter().enumerate() {
        let record = ground.starting(&store, &format!("click-{number}")).await;
        let (id, attempt) = (record.job.id, record.job.attempts[0].id);
        let mut after = record;
        for step in steps(attempt) {
            after = does(&store, id, step).await.0;
        }
        assert_eq!(job(&store, id).await, after, "{number}");
    }
}

pub async fn a_failed_job_says_why_and_can_be_reopened(ground: &Ground) {
    let store = ground.store();
    let record = ground.starting(&store, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    let (record, verdict) = does(&store, id, failed(attempt, FailureClass::Invalid)).await;
    assert_eq!(verdict, Verdict::Ended(Next::GiveUp(Failover::NotApplicable)));
    let Slot::GivenUp(why) = &record.job.slot else { panic!("{record:?}") };
    assert_eq!(why.class, GiveUpClass::Failure(FailureClass::Invalid));
    assert_eq!(job(&store, id).await, record);
    let (record, verdict) = does(&store, id, What::Reopen { provider: "main".into() }).await;
    assert_eq!((verdict, record.job.state()), (Verdict::Reopened, JobState::Queued));
    assert_eq!(job(&store, id).await, record);
    let start = ground.start("main", Trigger::Plan);
    let second = start.attempt;
    does(&store, id, What::Start(start)).await;
    let (record, verdict) = does(&store, id, succeeded(second, "2")).await;
    assert_eq!((verdict, record.job.version, record.job.attempts.len()), (Verdict::Won, 3, 2));
    assert_eq!(job(&store, id).await, record);
}

pub async fn a_resolution_says_whose_word_it_was(ground: &Ground) {
    let store = ground.store();
    let record = ground.starting(&store, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    does(&store, id, silent(attempt)).await;
    let policy = Policy {
        candidates: vec![Candidate { provider: "main".into(), certificate: None, refuses: false }],
        tries: 2,
        max_attempts: 4,
        backoff_ms: 500,
    };
    let what = What::Failed {
        attempt,
        failure: Failure::from(FailureClass::NotExecuted),
        seen: Seen::default(),
        evidence: Evidence::Operator { reason: "asked them".into() },
        follow: Follow { policy: Arc::new(policy), jitter: 0 },
    };
    let (record, verdict) = does(&store, id, what).await;
    assert!(matches!(verdict, Verdict::Ended(Next::Retry(Plan { due_at: NOW, .. }))), "{verdict:?}");
    let resolution = record.job.attempts[0].state.resolution().unwrap();
    assert_eq!((resolution.by, resolution.reason.as_deref()), (ResolvedBy::Operator, Some("asked them")));
    assert_eq!(job(&store, id).await, record);
    assert!(notice(&store, id, "resolution").await.detail.contains("asked them"));
}

pub async fn an_event_for_no_job_and_for_no_attempt_changes_nothing(ground: &Ground) {
    let store = ground.store();
    let event = Event { at: NOW, what: What::Cancel };
    assert_eq!(store.apply(ground.job_id(), event).await.unwrap(), Applied::NoSuchJob);
    let record = ground.starting(&store, "click").await;
    let why = refused(&store, record.job.id, succeeded(ground.attempt_id(), "1")).await;
    assert_eq!(why, Illegal::NoSuchAttempt);
    assert_eq!(job(&store, record.job.id).await, record);
    assert_eq!(store.job(ground.job_id()).await.unwrap(), None);
}

pub async fn a_hundred_attempts_are_kept_in_order(ground: &Ground) {
    let store = ground.store();
    let id = made(&store, ground.wish("ann", "click")).await.job.id;
    for _ in 0..100 {
        fail_once(ground, &store, id).await;
    }
    let read = job(&store, id).await;
    let numbers: Vec<u32> = read.job.attempts.iter().map(|a| a.number).collect();
    assert_eq!(numbers, (1..=100).collect::<Vec<u32>>());
}

async fn fail_once(ground: &Ground, store: &Store, id: JobId) {
    let start = ground.start("main", Trigger::Hand { force: false });
    let attempt = start.attempt;
    does(store, id, What::Start(start)).await;
    does(store, id, failed(attempt, FailureClass::NotSent)).await;
    does(store, id, What::Reopen { provider: "main".into() }).await;
}
