//! Who has proved itself: runs of contracts, what they issue and take back, and that no attempt stands on
//! what does not hold (R9).

use std::sync::Arc;

use onejob::store::{
    Applied, Begun, Certificate, CertificateFilter, Claim, Claimed, Contracts, Run, Running, Store, StoreError, Submit,
    Suspend, Suspension, Unproved, Verification, VerificationId, WhyUnproved,
};
use onejob_core::{
    Candidate, CertificateId, Event, Failover, FailureClass, Follow, Illegal, JobId, JobState, Millis, Next, Plan,
    Policy, Start, Trigger, Verdict, What,
};

use super::ground::{CONTRACT, Gate, Ground, HERE, NOW, does, failed, job, made, notice, plan, refused};

const HOUR: Millis = 3_600_000;

fn run(number: u128, provider: &str) -> Run {
    Run { id: VerificationId(number), task: "poster".into(), provider: provider.into() }
}

fn ended(passed: bool, at: Millis, certificate: Option<CertificateId>) -> Verification {
    Verification {
        contract_digest: CONTRACT,
        started_at: at - 5,
        ended_at: at,
        passed,
        report: r#"{"checks": []}"#.into(),
        certificate,
    }
}

fn certificate(id: u128, provider: &str) -> Certificate {
    Certificate {
        id: CertificateId(id),
        task: "poster".into(),
        provider: provider.into(),
        contract_digest: CONTRACT,
        model: Some("m-1".into()),
        detail: r#"{"samples": 3}"#.into(),
        issued_at: NOW,
        valid_until: NOW + HOUR,
        suspended: None,
    }
}

fn suspend(id: CertificateId) -> Suspend {
    Suspend { certificate: id, because: "another model answered".into(), about: None, at: NOW + 3 }
}

async fn all(store: &Store) -> Vec<Certificate> {
    store.certificates(CertificateFilter { limit: 100, ..CertificateFilter::default() }).await.unwrap()
}

/// A run of `provider` that passes and issues this certificate.
async fn passes(store: &Store, number: u128, certificate: Certificate) -> CertificateId {
    let run = run(number, &certificate.provider);
    assert_eq!(store.begin_verification(run.clone(), NOW, NOW + 60).await.unwrap(), Begun::Yes);
    let id = certificate.id;
    assert!(store.end_verification(run, ended(true, NOW, Some(id)), Some(certificate)).await.unwrap());
    id
}

/// A job that is queued for `backup`, on this certificate.
async fn queued_elsewhere(ground: &Ground, store: &Store, certificate: CertificateId) -> JobId {
    let plan = Plan { certificate: Some(certificate), ..plan("backup", NOW) };
    let key = format!("key-{}", ground.id());
    made(store, Submit { plan, ..ground.wish("ann", &key) }).await.job.id
}

async fn claim(ground: &Ground, store: &Store, contracts: &[(&str, u8)], at: Millis) -> Claimed {
    let contracts: Contracts = contracts.iter().map(|(task, byte)| ((*task).into(), [*byte; 32])).collect();
    let attempts = (0..5).map(|_| ground.attempt_id()).collect();
    let claim = Claim { provider: "backup".into(), attempts, node: HERE, contracts: Arc::new(contracts), at };
    store.claim(claim).await.unwrap()
}

const CONFIGURED: &[(&str, u8)] = &[("poster", CONTRACT[0])];

pub async fn one_run_of_a_contract_at_a_provider_goes_on_at_a_time(ground: &Ground) {
    let store = ground.store();
    let begin =
        async |number, provider, at, until| store.begin_verification(run(number, provider), at, until).await.unwrap();
    assert_eq!(begin(1, "backup", NOW, NOW + 10).await, Begun::Yes);
    assert_eq!(begin(2, "backup", NOW + 9, NOW + 30).await, Begun::Elsewhere { until: NOW + 10 });
    assert_eq!(begin(3, "third", NOW, NOW + 10).await, Begun::Yes, "of another provider");
    assert_eq!(begin(1, "backup", NOW + 9, NOW + 20).await, Begun::Yes, "it renews");
    let known = store.verifications().await.unwrap();
    assert_eq!(known.len(), 2);
    assert_eq!((&*known[0].task, &*known[0].provider, &known[0].last), ("poster", "backup", &None));
    assert_eq!(known[0].running, Some(Running { run: VerificationId(1), since: NOW, until: NOW + 20 }));
    assert_eq!(begin(2, "backup", NOW + 20, NOW + 30).await, Begun::Yes, "its lease has ended");
    assert_eq!(begin(1, "backup", NOW + 21, NOW + 40).await, Begun::Elsewhere { until: NOW + 30 });
    store.leave_verification(run(1, "backup")).await.unwrap();
    assert_eq!(begin(4, "backup", NOW + 22, NOW + 40).await, Begun::Elsewhere { until: NOW + 30 });
    store.leave_verification(run(2, "backup")).await.unwrap();
    assert_eq!(begin(4, "backup", NOW + 23, NOW + 40).await, Begun::Yes);
}

pub async fn a_pass_issues_a_certificate_and_is_told_once(ground: &Ground) {
    let store = ground.store();
    let issued = certificate(10, "backup");
    let id = passes(&store, 1, issued.clone()).await;
    assert_eq!(all(&store).await, std::slice::from_ref(&issued));
    assert_eq!(store.valid_certificates("poster".into(), NOW).await.unwrap(), std::slice::from_ref(&issued));
    assert_eq!(store.valid_certificates("mail".into(), NOW).await.unwrap(), []);
    assert_eq!(store.valid_certificates("poster".into(), NOW + HOUR).await.unwrap(), [], "it has ended");
    let known = store.verifications().await.unwrap();
    assert_eq!((known[0].running, known[0].last.clone()), (None, Some(ended(true, NOW, Some(id)))));
    // The same word again, as after a commit whose end was not known.
    let again = store.end_verification(run(1, "backup"), ended(true, NOW, Some(id)), Some(issued.clone())).await;
    assert_eq!((again.unwrap(), all(&store).await.len()), (true, 1));
}

pub async fn a_failed_run_takes_back_what_the_pair_had(ground: &Ground) {
    let store = ground.store();
    for (number, of) in [(1, certificate(10, "backup")), (2, certificate(11, "backup")), (3, certificate(12, "third"))]
    {
        passes(&store, number, of).await;
    }
    assert_eq!(store.begin_verification(run(4, "backup"), NOW + 5, NOW + 60).await.unwrap(), Begun::Yes);
    assert!(store.end_verification(run(4, "backup"), ended(false, NOW + 9, None), None).await.unwrap());
    let because = Some(Suspension { at: NOW + 9, because: "verification failed".into() });
    let after: Vec<_> = all(&store).await.into_iter().map(|c| (c.id.0, c.suspended)).collect();
    assert_eq!(after, [(12, None), (11, because.clone()), (10, because)]);
    let valid = store.valid_certificates("poster".into(), NOW + 10).await.unwrap();
    assert_eq!(valid.iter().map(|c| c.id.0).collect::<Vec<_>>(), [12]);
    assert_eq!(store.verifications().await.unwrap()[0].last, Some(ended(false, NOW + 9, None)));
}

pub async fn a_run_that_lost_its_lease_has_lost_its_say(ground: &Ground) {
    let store = ground.store();
    assert_eq!(store.begin_verification(run(1, "backup"), NOW, NOW + 10).await.unwrap(), Begun::Yes);
    assert_eq!(store.begin_verification(run(2, "backup"), NOW + 10, NOW + 60).await.unwrap(), Begun::Yes);
    assert!(store.end_verification(run(2, "backup"), ended(false, NOW + 20, None), None).await.unwrap());
    // What it found is older than the failure that is known since.
    let late = certificate(10, "backup");
    let end = store.end_verification(run(1, "backup"), ended(true, NOW + 21, Some(late.id)), Some(late)).await;
    assert!(!end.unwrap());
    assert_eq!(all(&store).await, []);
    assert!(!store.verifications().await.unwrap()[0].last.as_ref().unwrap().passed);
    assert!(!store.end_verification(run(9, "never begun"), ended(true, NOW, None), None).await.unwrap());
}

pub async fn a_certificate_is_suspended_once_and_noted_where_it_showed(ground: &Ground) {
    let store = ground.store();
    let id = passes(&store, 1, certificate(10, "backup")).await;
    let record = ground.starting(&store, "click").await;
    let about = Some((record.job.id, record.job.attempts[0].id));
    assert!(store.suspend(Suspend { about, ..suspend(id) }).await.unwrap());
    let again = Suspend { about, because: "for another reason".into(), at: NOW + 9, ..suspend(id) };
    assert!(!store.suspend(again).await.unwrap());
    assert!(!store.suspend(suspend(CertificateId(99))).await.unwrap());
    let stored = &all(&store).await[0];
    assert_eq!(stored.suspended, Some(Suspension { at: NOW + 3, because: "another model answered".into() }));
    assert!(!stored.holds(NOW + 4));
    let noted = notice(&store, record.job.id, "certificate_suspended").await;
    assert_eq!((noted.at, noted.attempt), (NOW + 3, about.map(|about| about.1)));
    assert!(noted.detail.contains("another model answered") && noted.detail.contains("cert_"), "{}", noted.detail);
}

pub async fn a_suspension_takes_back_what_was_issued_before_for_the_same_contract(ground: &Ground) {
    let store = ground.store();
    let other = Certificate { contract_digest: [9; 32], ..certificate(11, "backup") };
    let issued = [
        certificate(10, "backup"),
        other,
        certificate(12, "third"),
        certificate(13, "backup"),
        certificate(14, "backup"),
    ];
    for (number, of) in (1..).zip(issued) {
        passes(&store, number, of).await;
    }
    assert!(store.suspend(suspend(CertificateId(13))).await.unwrap());
    let holds: Vec<u128> = all(&store).await.iter().filter(|c| c.suspended.is_none()).map(|c| c.id.0).collect();
    assert_eq!(holds, [14, 12, 11], "not what came after it, nor another's, nor another contract's");
    assert!(!store.suspend(suspend(CertificateId(10))).await.unwrap());
}

pub async fn of_the_certificates_that_hold_the_newest_of_each_contract_is_named(ground: &Ground) {
    let store = ground.store();
    let other = Certificate { contract_digest: [9; 32], ..certificate(12, "backup") };
    let short = Certificate { valid_until: NOW + 1, ..certificate(14, "backup") };
    let issued = [certificate(10, "backup"), certificate(11, "backup"), other, certificate(13, "third"), short];
    for (number, of) in (1..).zip(issued) {
        passes(&store, number, of).await;
    }
    let valid = async |at| {
        let valid = store.valid_certificates("poster".into(), at).await.unwrap();
        valid.iter().map(|c| c.id.0).collect::<Vec<_>>()
    };
    assert_eq!(valid(NOW).await, [14, 13, 12]);
    assert_eq!(valid(NOW + 1).await, [13, 12, 11]);
    let of = async |task: Option<&str>, provider: Option<&str>, limit| {
        let filter = CertificateFilter { task: task.map(Into::into), provider: provider.map(Into::into), limit };
        store.certificates(filter).await.unwrap().iter().map(|c| c.id.0).collect::<Vec<_>>()
    };
    assert_eq!(of(None, None, 2).await, [14, 13]);
    assert_eq!(of(Some("poster"), Some("backup"), 9).await, [14, 12, 11, 10]);
    assert_eq!(of(Some("mail"), None, 9).await, [0; 0]);
}

pub async fn certificates_go_when_they_ended_long_ago(ground: &Ground) {
    let store = ground.store();
    for (number, of) in (1..).zip([certificate(10, "backup"), certificate(11, "third"), certificate(12, "fourth")]) {
        passes(&store, number, of).await;
    }
    assert!(store.suspend(suspend(CertificateId(11))).await.unwrap());
    assert_eq!(store.prune_certificates(NOW + 3, 9).await.unwrap(), 0);
    assert_eq!(store.prune_certificates(NOW + 4, 9).await.unwrap(), 1, "the suspended one");
    assert_eq!(store.prune_certificates(NOW + HOUR, 9).await.unwrap(), 0);
    assert_eq!(store.prune_certificates(NOW + HOUR + 1, 1).await.unwrap(), 1);
    assert_eq!(all(&store).await.iter().map(|c| c.id.0).collect::<Vec<_>>(), [12]);
}

pub async fn r9_a_claim_starts_elsewhere_only_what_stands_on_a_certificate_that_holds(ground: &Ground) {
    let store = ground.store();
    let taken_back = passes(&store, 1, certificate(1_000, "backup")).await;
    let good = passes(&store, 2, certificate(1_001, "backup")).await;
    let of_another = passes(&store, 3, certificate(1_002, "third")).await;
    let short = passes(&store, 4, Certificate { valid_until: NOW, ..certificate(1_003, "backup") }).await;
    assert!(store.suspend(suspend(taken_back)).await.unwrap());
    let starts = queued_elsewhere(ground, &store, good).await;
    let mut unproved = Vec::new();
    for certificate in [taken_back, of_another, short, CertificateId(99)] {
        unproved.push(queued_elsewhere(ground, &store, certificate).await);
    }
    let claimed = claim(ground, &store, CONFIGURED, NOW).await;
    assert_eq!(claimed.records.iter().map(|record| record.job.id).collect::<Vec<_>>(), [starts]);
    assert_eq!(claimed.records[0].job.attempts[0].certificate, Some(good));
    assert_eq!(job(&store, starts).await, claimed.records[0]);
    assert_eq!(claimed.unproved.iter().map(|unproved| unproved.record.job.id).collect::<Vec<_>>(), unproved);
    for Unproved { record, because } in &claimed.unproved {
        assert_eq!((record.job.state(), because), (JobState::Queued, &WhyUnproved::DoesNotHold));
        assert_eq!(job(&store, record.job.id).await, *record, "nothing was written");
    }
    assert_eq!(claimed.next_due, None, "they hold up nobody");
}

pub async fn r9_a_node_that_is_configured_otherwise_starts_nothing_on_a_certificate(ground: &Ground) {
    let store = ground.store();
    let good = passes(&store, 1, certificate(1_000, "backup")).await;
    let id = queued_elsewhere(ground, &store, good).await;
    for contracts in [&[("poster", 7)][..], &[("mail", CONTRACT[0])], &[]] {
        let claimed = claim(ground, &store, contracts, NOW).await;
        assert_eq!((claimed.records.len(), claimed.unproved.len()), (0, 1), "{contracts:?}");
        assert_eq!(claimed.unproved[0].because, WhyUnproved::OtherContract);
    }
    assert_eq!(claim(ground, &store, CONFIGURED, NOW).await.records[0].job.id, id);
}

pub async fn r9_a_start_loses_a_certificate_that_does_not_hold(ground: &Ground) {
    let store = ground.store();
    let good = passes(&store, 1, certificate(1_000, "backup")).await;
    let id = made(&store, ground.wish("ann", "click")).await.job.id;
    let start =
        |certificate, trigger| What::Start(Start { certificate: Some(certificate), ..ground.start("backup", trigger) });
    let by_hand = Trigger::Hand { force: false };
    let not_verified = Illegal::NotVerified { provider: "backup".into() };
    assert_eq!(refused(&store, id, start(CertificateId(99), by_hand)).await, not_verified);
    assert!(store.suspend(suspend(good)).await.unwrap());
    assert_eq!(refused(&store, id, start(good, by_hand)).await, not_verified);
    let (record, _) = does(&store, id, start(good, Trigger::Hand { force: true })).await;
    assert_eq!(record.job.attempts[0].certificate, None, "what is forced stands on nothing");
    assert_eq!(job(&store, id).await, record);
}

pub async fn r9_a_start_at_the_first_provider_stands_on_nothing(ground: &Ground) {
    let store = ground.store();
    let start = Start { certificate: Some(CertificateId(99)), ..ground.start("main", Trigger::Plan) };
    let record = made(&store, Submit { start: Some(start), ..ground.wish("ann", "click") }).await;
    assert_eq!(record.job.attempts[0].certificate, None);
    assert_eq!(job(&store, record.job.id).await, record);
}

pub async fn r9_a_submit_that_goes_elsewhere_waits_for_a_claim(ground: &Ground) {
    let store = ground.store();
    let good = passes(&store, 1, certificate(1_000, "backup")).await;
    let plan = Plan { certificate: Some(good), ..plan("backup", NOW) };
    let start = Start { certificate: Some(good), ..ground.start("backup", Trigger::Plan) };
    let record = made(&store, Submit { plan, start: Some(start), ..ground.wish("ann", "click") }).await;
    assert_eq!((record.job.state(), record.job.attempts.len()), (JobState::Queued, 0));
    assert_eq!(job(&store, record.job.id).await, record);
    assert_eq!(claim(ground, &store, CONFIGURED, NOW).await.records[0].job.id, record.job.id);
}

pub async fn r9_what_is_unproved_is_planned_anew(ground: &Ground) {
    let store = ground.store();
    let record = ground.starting(&store, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    let candidate = |name: &str, certificate: Option<u128>| Candidate {
        provider: name.into(),
        certificate: certificate.map(CertificateId),
        refuses: false,
    };
    let follow = |backup, third| {
        let candidates = vec![candidate("main", None), candidate("backup", backup), candidate("third", third)];
        Follow { policy: Arc::new(Policy { candidates, tries: 1, max_attempts: 9, backoff_ms: 0 }), jitter: 0 }
    };
    let mut what = failed(attempt, FailureClass::Refused);
    if let What::Failed { follow: then, .. } = &mut what {
        *then = follow(Some(1_000), None);
    }
    let (record, _) = does(&store, id, what).await;
    let unproved = |certificate, follow| What::Unproved { certificate: Some(CertificateId(certificate)), follow };
    assert_eq!(refused(&store, id, unproved(7, follow(None, None))).await, Illegal::NotDue);
    assert_eq!(job(&store, id).await, record);
    let (record, verdict) = does(&store, id, unproved(1_000, follow(None, Some(1_001)))).await;
    let Verdict::Replanned(Next::Retry(plan)) = verdict else { panic!("{verdict:?}") };
    assert_eq!((&*plan.provider, plan.certificate), ("third", Some(CertificateId(1_001))));
    assert_eq!(job(&store, id).await, record);
    let (record, verdict) = does(&store, id, unproved(1_001, follow(None, None))).await;
    assert_eq!(verdict, Verdict::Replanned(Next::GiveUp(Failover::NoVerifiedProvider)));
    assert_eq!((record.job.state(), record.job.version), (JobState::Failed, 1));
    assert_eq!(job(&store, id).await, record);
}

/// A start is held between its decision and its write; meanwhile its certificate is taken back.
pub async fn r9_a_suspension_that_meets_a_held_start_comes_second(ground: &Ground) {
    let gate = Gate::default();
    let store = ground.store_with(gate.hold());
    let good = passes(&store, 1, certificate(1_000, "backup")).await;
    let id = made(&store, ground.wish("ann", "click")).await.job.id;
    let what = What::Start(Start { certificate: Some(good), ..ground.start("backup", Trigger::Hand { force: false }) });
    let starting = move |store: Store| async move { store.apply(id, Event { at: NOW, what }).await };
    let (start, suspended) = beside_a_suspension(&gate, &store, good, starting).await;
    assert!(matches!(start, Ok(Applied::Done { verdict: Verdict::Started, .. })), "{start:?}");
    assert!(suspended);
    assert_eq!(job(&store, id).await.job.attempts[0].certificate, Some(good));
}

/// The same with a claim.
pub async fn r9_a_suspension_that_meets_a_held_claim_comes_second(ground: &Ground) {
    let gate = Gate::default();
    let store = ground.store_with(gate.hold());
    let good = passes(&store, 1, certificate(1_000, "backup")).await;
    let (one, two) = (queued_elsewhere(ground, &store, good).await, queued_elsewhere(ground, &store, good).await);
    let claim = Claim {
        provider: "backup".into(),
        attempts: vec![ground.attempt_id(), ground.attempt_id()],
        node: HERE,
        contracts: Arc::new(CONFIGURED.iter().map(|(task, byte)| ((*task).into(), [*byte; 32])).collect()),
        at: NOW,
    };
    let claiming = move |store: Store| async move { store.claim(claim).await };
    let (claimed, suspended) = beside_a_suspension(&gate, &store, good, claiming).await;
    let claimed = claimed.unwrap();
    assert_eq!(claimed.records.iter().map(|record| record.job.id).collect::<Vec<_>>(), [one, two]);
    assert!(claimed.unproved.is_empty() && suspended);
}

/// Begins `start`, waits until its decision is held, and suspends the certificate.
async fn beside_a_suspension<T, F>(
    gate: &Gate,
    store: &Store,
    certificate: CertificateId,
    start: impl FnOnce(Store) -> F,
) -> (Result<T, StoreError>, bool)
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    gate.arm();
    let start = tokio::spawn(start(store.clone()));
    let waiting = gate.clone();
    tokio::task::spawn_blocking(move || waiting.wait_for_the_first()).await.unwrap();
    let suspending = {
        let store = store.clone();
        tokio::spawn(async move { store.suspend(suspend(certificate)).await.unwrap() })
    };
    (start.await.unwrap(), suspending.await.unwrap())
}
