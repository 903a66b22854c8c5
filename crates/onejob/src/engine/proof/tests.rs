use onejob_core::{Candidate, Effects, Evidence, Failure, FailureClass, Start, Trigger};

use super::*;
use crate::engine::dispatch;
use crate::engine::member::Member;
use crate::intent::Intent;
use crate::store::{Submit, Submitted, VerificationId};

const CONFIG: &str = r#"
[server]
store = "memory:"
[providers.main]
kind = "simulated"
[providers.backup]
kind = "simulated"
[tasks.proved]
providers = ["main", "backup"]
tries = 1
[tasks.proved.contract]
cases = "cases.toml"
"#;

/// A node that shares its store with others.
async fn engine() -> Engine {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cases.toml"), "[[case]]\nname = \"one\"\ninput = {}\n").unwrap();
    let config = Config::parse(CONFIG, "onejob.toml", dir.path(), &|_| None).unwrap();
    let mut engine = Engine::open(Arc::new(config)).await.unwrap();
    Arc::get_mut(&mut engine.inner).unwrap().member = Member::run_down();
    engine
}

/// A certificate of `backup`, of our contract or of another one.
async fn certify(engine: &Engine, is_ours: bool) -> CertificateId {
    let config = engine.config();
    let ours = config.contract_digest(&config.tasks["proved"], &config.providers["backup"]);
    let contract_digest = if is_ours { ours } else { [7; 32] };
    let run = Run { id: VerificationId(fastrand::u128(..)), task: "proved".into(), provider: "backup".into() };
    engine.begin_verification(run.clone(), Duration::from_secs(9)).await.unwrap();
    let now = engine.store().now();
    let certificate = Certificate {
        id: id::new_certificate_id(),
        task: run.task.clone(),
        provider: run.provider.clone(),
        contract_digest,
        model: None,
        detail: "{}".into(),
        issued_at: now,
        valid_until: now + 3_600_000,
        suspended: None,
    };
    let (id, report) = (certificate.id, "{}".into());
    let passed =
        Verification { contract_digest, started_at: now, ended_at: now, passed: true, report, certificate: Some(id) };
    assert!(engine.end_verification(run, passed, Some(certificate)).await.unwrap());
    id
}

/// A job that failed at `main` ten seconds ago and stands since then in the line of `backup`.
async fn queued_on(engine: &Engine, certificate: CertificateId) -> Arc<Record> {
    let inner = &engine.inner;
    let at = inner.now() - 10_000;
    let mut policy = inner.config.tasks["proved"].policy(None);
    let plan = onejob_core::opening(&policy, at, None).unwrap();
    let start = Start {
        attempt: id::new_attempt_id(),
        provider: "main".into(),
        primary: "main".into(),
        certificate: None,
        trigger: Trigger::Plan,
        node: inner.member.node(),
    };
    let attempt = start.attempt;
    let submit = Submit {
        id: id::new_job_id(),
        owner: "u".into(),
        idempotency_key: attempt.0.to_string().into(),
        intent: Intent::new("proved", &serde_json::json!({}), None),
        metadata: "{}".into(),
        priority: 0,
        run_at: None,
        deadline: None,
        effects: Effects::Exclusive,
        plan,
        start: Some(start),
        at,
    };
    let Submitted::New(made) = inner.store.submit(submit).await.unwrap() else { panic!("the job is new") };
    policy.candidates[1].certificate = Some(certificate);
    let follow = Follow { policy: Arc::new(policy), jitter: 0 };
    let failure = Failure::from(FailureClass::Refused);
    let what = What::Failed { attempt, failure, seen: Seen::default(), evidence: Evidence::Answer, follow };
    match inner.store.apply(made.job.id, Event { at, what }).await.unwrap() {
        Applied::Done { record, .. } if record.job.state() == JobState::Queued => record,
        applied => panic!("{applied:?}"),
    }
}

async fn now_of(engine: &Engine, record: &Record) -> Arc<Record> {
    engine.job(record.job.id).await.unwrap().unwrap()
}

#[tokio::test]
async fn r9_a_node_of_another_contract_ends_no_job_that_others_may_start() {
    let engine = engine().await;
    let theirs = certify(&engine, false).await;
    let record = queued_on(&engine, theirs).await;
    let unproved = Unproved { record: record.clone(), because: WhyUnproved::OtherContract };
    for remembers in [false, true] {
        let before = engine.inner.now();
        let again = engine.inner.replan(&unproved).await.unwrap();
        assert!(again.is_some_and(|again| again >= before + OTHERS_GRACE_MS), "{again:?}, {remembers}");
        assert_eq!(now_of(&engine, &record).await, record, "it waits for them");
        engine.inner.refresh().await.unwrap();
    }
    assert!(engine.suspend(theirs, "by hand".into()).await.unwrap());
    let ended = Unproved { because: WhyUnproved::DoesNotHold, ..unproved };
    assert_eq!(engine.inner.replan(&ended).await.unwrap(), None);
    assert_eq!(now_of(&engine, &record).await.job.state(), JobState::Failed, "nobody may start it any more");
}

#[tokio::test]
async fn r9_a_node_of_another_contract_takes_what_it_has_a_certificate_for_where_it_stood_in_line() {
    let engine = engine().await;
    let record = queued_on(&engine, certify(&engine, false).await).await;
    let Slot::Open { plan: Some(plan) } = &record.job.slot else { panic!("{record:?}") };
    let ours = certify(&engine, true).await;
    let unproved = Unproved { record: record.clone(), because: WhyUnproved::OtherContract };
    assert_eq!(engine.inner.replan(&unproved).await.unwrap(), None);
    let anew = onejob_core::Plan { certificate: Some(ours), ..plan.clone() };
    assert_eq!(now_of(&engine, &record).await.job.slot, Slot::Open { plan: Some(anew) });
}

#[tokio::test]
async fn a_store_that_is_away_and_a_node_that_stops_plan_nothing_more() {
    for (is_away, errors) in [(true, 1), (false, 0)] {
        let engine = engine().await;
        let certificate = certify(&engine, true).await;
        let record = queued_on(&engine, certificate).await;
        let line = [(); 3].map(|()| Unproved { record: record.clone(), because: WhyUnproved::DoesNotHold });
        if is_away {
            engine.inner.store.close().await;
        } else {
            engine.inner.stage.send_replace(Stage::Draining);
        }
        let again = dispatch::replan(&engine.inner, &line).await;
        assert_eq!((engine.inner.metrics.store_errors.get(), again.is_some()), (errors, is_away));
        if !is_away {
            assert_eq!(now_of(&engine, &record).await, record);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_only_looks_leaves_the_probe_of_an_open_circuit_to_a_job() {
    let engine = engine().await;
    let certificate = certify(&engine, true).await;
    let record = queued_on(&engine, certificate).await;
    let circuit = &engine.inner.lanes.get("main").unwrap().circuit;
    while !circuit.refused(None) {}
    tokio::time::advance(Duration::from_secs(2)).await;
    let main = |policy: Policy| -> Candidate { policy.candidates[0].clone() };
    for _ in 0..2 {
        assert!(main(engine.inner.policy(&record, Asks::ToLook).await.unwrap()).refuses);
    }
    let to_go = Asks::ToGo { left: None };
    assert!(!main(engine.inner.policy(&record, to_go).await.unwrap()).refuses, "the probe");
    assert!(main(engine.inner.policy(&record, to_go).await.unwrap()).refuses, "one in a period");
}

#[test]
fn a_long_line_that_is_left_to_others_is_not_looked_at_without_end() {
    let (next_due, left) = (Some(25), Some(2_000));
    assert_eq!(dispatch::come_back(next_due, left, true), left);
    assert_eq!(dispatch::come_back(next_due, left, false), next_due);
    assert_eq!(dispatch::come_back(next_due, None, true), next_due, "they are planned anew: there is more");
}
