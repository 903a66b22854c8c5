//! The answers of `decide`, one table of them for people: docs/states.md is printed from here.
//! That the rules hold in every order of events is asked in `model`.

use std::fmt::Write as _;
use std::sync::Arc;

use super::*;
use crate::{Candidate, CertificateId, JobId, NodeId, Policy};

const NOW: Millis = 1000;
const DEADLINE: Millis = 2000;
const ID: AttemptId = AttemptId(1);
const OTHER: AttemptId = AttemptId(2);

fn event(what: What) -> Event {
    Event { at: NOW, what }
}

fn operator() -> Evidence {
    Evidence::Operator { reason: "looked".into() }
}

fn follow(tries: u32) -> Follow {
    let candidates = vec![Candidate { provider: "main".into(), certificate: None, refuses: false }];
    Follow { policy: Arc::new(Policy { candidates, tries, max_attempts: 9, backoff_ms: 0 }), jitter: 0 }
}

fn start(attempt: AttemptId, trigger: Trigger) -> What {
    let (provider, primary): (Text, Text) = ("main".into(), "main".into());
    What::Start(Start { attempt, provider, primary, certificate: None, trigger, node: NodeId(1) })
}

fn succeeded(attempt: AttemptId, evidence: Evidence) -> What {
    What::Succeeded { attempt, result: payload(), seen: Seen::default(), evidence }
}

fn payload() -> Payload {
    Payload { text: "\"done\"".into(), digest: [7; 32] }
}

fn failed(attempt: AttemptId, evidence: Evidence, tries: u32) -> What {
    What::Failed {
        attempt,
        failure: FailureClass::FailedThere.into(),
        seen: Seen::default(),
        evidence,
        follow: follow(tries),
    }
}

fn abandoned(attempt: AttemptId, evidence: Evidence) -> What {
    What::Abandoned { attempt, evidence, follow: follow(2) }
}

fn confirmed(attempt: AttemptId) -> What {
    What::CancelConfirmed { attempt, never_sent: false, evidence: Evidence::Answer }
}

fn unproved() -> What {
    What::Unproved { certificate: Some(CertificateId(1)), follow: follow(2) }
}

fn silent(attempt: AttemptId) -> What {
    What::Silent { attempt, cause: Cause::Timeout }
}

fn running(attempt: AttemptId) -> What {
    What::Running { attempt, evidence: Evidence::Lookup }
}

/// The job after these events, all of which must be legal.
fn after(effects: Effects, deadline: Option<Millis>, events: impl IntoIterator<Item = What>) -> Job {
    let plan = Plan { provider: "main".into(), primary: "main".into(), certificate: None, due_at: 0 };
    let new = Job::new(JobId(1), effects, deadline, plan);
    events.into_iter().fold(new, |job, what| decide(&job, &event(what)).expect("legal").job)
}

/// What leads to an attempt of that state, in a job whose slot it leaves as open as it can.
fn way_to(state: AttemptStateName) -> Vec<What> {
    let plan = start(ID, Trigger::Plan);
    match state {
        AttemptStateName::Starting => vec![plan],
        AttemptStateName::Running => vec![plan, running(ID)],
        AttemptStateName::Unknown => vec![plan, silent(ID)],
        AttemptStateName::Succeeded => vec![plan, succeeded(ID, Evidence::Answer)],
        AttemptStateName::Failed => vec![plan, failed(ID, Evidence::Answer, 2)],
        AttemptStateName::Superseded => vec![plan, What::Cancel, succeeded(ID, Evidence::Answer)],
        AttemptStateName::Cancelled => vec![plan, What::Cancel, confirmed(ID)],
        AttemptStateName::Abandoned => vec![plan, silent(ID), abandoned(ID, operator())],
    }
}

/// A racing job in which attempt 2 has won and attempt 1 is still in that state.
fn beside_a_winner(state: AttemptStateName) -> Job {
    let mut way = vec![
        start(ID, Trigger::Plan),
        running(ID),
        start(OTHER, Trigger::Hand { force: false }),
        succeeded(OTHER, Evidence::Answer),
    ];
    match state {
        AttemptStateName::Running => {}
        AttemptStateName::Unknown => way.push(silent(ID)),
        // The winner must have started beside it, so it was running; level the rest.
        AttemptStateName::Starting => {}
        AttemptStateName::Succeeded
        | AttemptStateName::Failed
        | AttemptStateName::Superseded
        | AttemptStateName::Cancelled
        | AttemptStateName::Abandoned => panic!("only open attempts"),
    }
    let mut job = after(Effects::Racing, None, way);
    if state == AttemptStateName::Starting {
        job.attempts[0].state = AttemptState::Starting;
    }
    job
}

fn refusal(illegal: &Illegal) -> &'static str {
    match illegal {
        Illegal::NoSuchAttempt => "refused: no such attempt",
        Illegal::JobClosed(_) => "refused: job closed",
        Illegal::AttemptInFlight { .. } => "refused: in flight",
        Illegal::AttemptClosed(_) => "refused: ended",
        Illegal::NotVerified { .. } => "refused: no certificate",
        Illegal::NotDue => "refused: not due",
        Illegal::DeadlinePassed => "refused: deadline passed",
        Illegal::JobOpen => "refused: job open",
        Illegal::NotADecree => "refused: not a decree",
    }
}

/// What an event makes of attempt 1, in a word.
fn attempt_cell(job: &Job, what: What) -> String {
    match decide(job, &event(what)) {
        Err(illegal) => refusal(&illegal).to_owned(),
        Ok(change) if change.touched.is_none() && change.notices.is_empty() => "no change".to_owned(),
        Ok(change) if change.touched.is_none() => "noted".to_owned(),
        Ok(change) => {
            let state = |job: &Job| job.attempt(ID).map(|a| a.state.name());
            match state(&change.job).filter(|now| Some(*now) != state(job)) {
                Some(now) => format!("→ {}", now.as_str()),
                None => "recorded".to_owned(),
            }
        }
    }
}

/// What an event makes of the job, in a word.
fn job_cell(job: &Job, what: What, at: Millis) -> String {
    match decide(job, &Event { at, what }) {
        Err(illegal) => refusal(&illegal).to_owned(),
        Ok(change) if change.job == *job => "no change".to_owned(),
        Ok(change) if change.job.state() == job.state() => format!("{}, as before", job.state().as_str()),
        Ok(change) => format!("→ {}", change.job.state().as_str()),
    }
}

fn row(out: &mut String, cells: impl IntoIterator<Item = String>) {
    let _ = writeln!(out, "| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

fn head(out: &mut String, cells: &[&str]) {
    row(out, cells.iter().map(|cell| (*cell).to_owned()));
    row(out, cells.iter().map(|_| "---".to_owned()));
}

type Column<W> = (&'static str, W);

fn attempt_columns() -> Vec<Column<What>> {
    vec![
        ("still runs", running(ID)),
        ("a handle", What::Handle { attempt: ID, handle: "h".into() }),
        ("silence", silent(ID)),
        ("success", succeeded(ID, Evidence::Answer)),
        ("failure", failed(ID, Evidence::Answer, 2)),
        ("cancel confirmed", confirmed(ID)),
        ("decree: success", succeeded(ID, operator())),
        ("decree: failure", failed(ID, operator(), 2)),
        ("decree: abandoned", abandoned(ID, operator())),
    ]
}

fn attempt_tables(out: &mut String) {
    out.push_str("### An attempt of an open job, or one that has ended\n\n");
    let columns = attempt_columns();
    let titles: Vec<&str> = std::iter::once("attempt").chain(columns.iter().map(|c| c.0)).collect();
    head(out, &titles);
    for state in AttemptStateName::ALL {
        let job = after(Effects::Exclusive, None, way_to(state));
        let cells = columns.iter().map(|(_, what)| attempt_cell(&job, what.clone()));
        row(out, std::iter::once(format!("**{}**", state.as_str())).chain(cells));
    }
    out.push_str("\n### An open attempt after another has won\n\n");
    head(out, &titles);
    for state in AttemptStateName::ALL.into_iter().filter(|state| !state.is_terminal()) {
        let job = beside_a_winner(state);
        let cells = columns.iter().map(|(_, what)| attempt_cell(&job, what.clone()));
        row(out, std::iter::once(format!("**{}**", state.as_str())).chain(cells));
    }
}

/// A job in every state, and the racing one that runs.
fn jobs() -> Vec<(&'static str, Job)> {
    let job = |events: Vec<What>| after(Effects::Exclusive, Some(DEADLINE), events);
    let plan = || start(ID, Trigger::Plan);
    let jobs = vec![
        ("queued", job(vec![])),
        ("running", job(vec![plan(), running(ID)])),
        ("running, racing", after(Effects::Racing, Some(DEADLINE), [plan(), running(ID)])),
        ("unknown", job(vec![plan(), silent(ID)])),
        ("succeeded", job(vec![plan(), succeeded(ID, Evidence::Answer)])),
        ("failed", job(vec![plan(), failed(ID, Evidence::Answer, 1)])),
        ("cancelled", job(vec![plan(), running(ID), What::Cancel])),
    ];
    assert!(jobs.iter().all(|(name, job)| name.starts_with(job.state().as_str())));
    jobs
}

fn job_table(out: &mut String) {
    out.push_str("\n### A job\n\nIts one attempt, where it has one, is in the state that gives the job its own.\n\n");
    let columns: Vec<Column<(What, Millis)>> = vec![
        ("planned start", (start(OTHER, Trigger::Plan), NOW)),
        ("start by hand", (start(OTHER, Trigger::Hand { force: false }), NOW)),
        ("hedge", (start(OTHER, Trigger::Hedge { seen: 1 }), NOW)),
        ("the plan is unproved", (unproved(), NOW)),
        ("cancel", (What::Cancel, NOW)),
        ("retry", (What::Reopen { provider: "main".into() }, NOW)),
        ("the deadline passes", (What::DeadlinePassed, DEADLINE)),
        ("silence", (silent(ID), NOW)),
        ("success", (succeeded(ID, Evidence::Answer), NOW)),
        ("failure, a try left", (failed(ID, Evidence::Answer, 2), NOW)),
        ("failure, the last try", (failed(ID, Evidence::Answer, 1), NOW)),
        ("decree: abandoned", (abandoned(ID, operator()), NOW)),
    ];
    let titles: Vec<&str> = std::iter::once("job").chain(columns.iter().map(|c| c.0)).collect();
    head(out, &titles);
    for (name, job) in jobs() {
        let cells = columns.iter().map(|(_, (what, at))| job_cell(&job, what.clone(), *at));
        row(out, std::iter::once(format!("**{name}**")).chain(cells));
    }
}

const BEGIN: &str =
    "<!-- printed from crates/core by `ONEJOB_BLESS=1 cargo test -p onejob-core the_page_of_states` -->\n";
const END: &str = "<!-- end of what is printed -->\n";

#[test]
fn the_page_of_states_shows_what_decide_answers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/states.md");
    let page = std::fs::read_to_string(path).expect("docs/states.md is there").replace("\r\n", "\n");
    let (before, rest) = page.split_once(BEGIN).expect("the page has the first marker");
    let (_, behind) = rest.split_once(END).expect("the page has the last marker");
    let mut tables = String::new();
    attempt_tables(&mut tables);
    job_table(&mut tables);
    let expected = format!("{before}{BEGIN}\n{tables}\n{END}{behind}");
    if page != expected && std::env::var_os("ONEJOB_BLESS").is_some() {
        std::fs::write(path, &expected).expect("docs/states.md can be written");
        return;
    }
    assert!(
        page == expected,
        "docs/states.md is not what decide answers; run with ONEJOB_BLESS=1 and look at the diff"
    );
}

#[test]
fn the_page_of_states_explains_every_word() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/states.md");
    let page = std::fs::read_to_string(path).expect("docs/states.md is there");
    let words = (AttemptStateName::ALL.into_iter().map(AttemptStateName::as_str))
        .chain(JobState::ALL.into_iter().map(JobState::as_str))
        .chain(FailureClass::ALL.into_iter().map(FailureClass::as_str))
        .chain(Cause::ALL.into_iter().map(Cause::as_str));
    for word in words {
        assert!(page.contains(&format!("\n- `{word}`: ")), "{word} has no paragraph");
    }
}

#[test]
fn r8_a_failure_told_of_a_superseded_attempt_is_noted_and_changes_nothing() {
    let job = after(Effects::Exclusive, None, way_to(AttemptStateName::Superseded));
    let change = decide(&job, &event(failed(ID, Evidence::Callback, 2))).unwrap();
    assert_eq!(change.job, job);
    let word = LateWord::Failed(FailureClass::FailedThere);
    assert_eq!(change.notices, [Notice::Late { attempt: ID, state: AttemptStateName::Superseded, word }]);
    assert_eq!(change.notices[0].kind(), "late_word");
}

#[test]
fn r8_a_result_after_the_attempt_was_abandoned_is_a_duplicate_effect_and_does_not_win() {
    let job = after(Effects::Exclusive, None, way_to(AttemptStateName::Abandoned));
    let change = decide(&job, &event(succeeded(ID, Evidence::Answer))).unwrap();
    assert_eq!((&change.job, change.touched), (&job, None));
    assert_eq!(change.notices[0].kind(), "duplicate_effect");
}

#[test]
fn the_winner_may_repeat_itself() {
    let job = after(Effects::Exclusive, None, way_to(AttemptStateName::Succeeded));
    let change = decide(&job, &event(succeeded(ID, Evidence::Callback))).unwrap();
    assert_eq!((change.verdict, &change.job, change.notices.len()), (Verdict::AlreadyWon, &job, 0));
}

#[test]
fn an_attempt_of_a_cancelled_job_may_still_become_running_and_end() {
    let job = after(Effects::Exclusive, None, [start(ID, Trigger::Plan), What::Cancel]);
    let job = decide(&job, &event(running(ID))).unwrap().job;
    assert_eq!((job.state(), job.attempts[0].state.name()), (JobState::Cancelled, AttemptStateName::Running));
    let change = decide(&job, &event(succeeded(ID, Evidence::Answer))).unwrap();
    assert_eq!(change.verdict, Verdict::Superseded { by: None });
    assert_eq!((change.job.state(), change.job.version), (JobState::Cancelled, 1));
}

#[test]
fn r5_the_first_cause_of_silence_stands() {
    let job = after(Effects::Exclusive, None, way_to(AttemptStateName::Unknown));
    let change = decide(&job, &event(What::Silent { attempt: ID, cause: Cause::NodeDied })).unwrap();
    assert_eq!((change.verdict, change.job), (Verdict::AlreadySo, job));
}

#[test]
fn a_handle_given_again_writes_nothing_and_another_one_is_recorded() {
    let handle = |text: &str| What::Handle { attempt: ID, handle: text.into() };
    let job = after(Effects::Exclusive, None, [start(ID, Trigger::Plan), handle("h")]);
    assert_eq!(decide(&job, &event(handle("h"))).unwrap().verdict, Verdict::AlreadySo);
    let change = decide(&job, &event(handle("other"))).unwrap();
    assert_eq!(change.job.attempts[0].handle.as_deref(), Some("other"));
}

#[test]
fn a_plan_starts_at_its_provider_when_it_is_due_and_not_before() {
    let plan = Plan { provider: "main".into(), primary: "main".into(), certificate: None, due_at: NOW + 1 };
    let job = Job::new(JobId(1), Effects::Exclusive, None, plan);
    assert_eq!(decide(&job, &event(start(ID, Trigger::Plan))), Err(Illegal::NotDue));
    let due = Event { at: NOW + 1, what: start(ID, Trigger::Plan) };
    assert_eq!(decide(&job, &due).unwrap().verdict, Verdict::Started);
    assert_eq!(decide(&job, &event(start(ID, Trigger::Hand { force: false }))).unwrap().verdict, Verdict::Started);
}

#[test]
fn r9_a_forced_start_is_on_record_as_by_hand() {
    let mut forced = start(ID, Trigger::Hand { force: true });
    if let What::Start(start) = &mut forced {
        start.provider = "backup".into();
    }
    let job = after(Effects::Exclusive, None, [forced]);
    assert!(job.attempts[0].by_hand && job.attempts[0].certificate.is_none());
    assert_eq!(job.attempts[0].certificate, None::<CertificateId>);
}

#[test]
fn nothing_starts_from_the_deadline_on_and_a_job_past_it_stays_failed() {
    let job = after(Effects::Exclusive, Some(DEADLINE), []);
    let at = |at, what| decide(&job, &Event { at, what });
    assert!(at(DEADLINE - 1, start(ID, Trigger::Plan)).is_ok());
    for trigger in [Trigger::Plan, Trigger::Hedge { seen: 0 }, Trigger::Hand { force: true }] {
        assert_eq!(at(DEADLINE, start(ID, trigger)), Err(Illegal::DeadlinePassed));
    }
    assert_eq!(at(DEADLINE - 1, What::DeadlinePassed), Err(Illegal::NotDue));
    let expired = at(DEADLINE, What::DeadlinePassed).unwrap().job;
    assert!(expired.state() == JobState::Failed && expired.is_safe_to_ask_again());
    let retry = Event { at: DEADLINE, what: What::Reopen { provider: "main".into() } };
    assert_eq!(decide(&expired, &retry), Err(Illegal::DeadlinePassed));
}

#[test]
fn damage_that_no_event_can_cause_is_unsound() {
    let whole = after(Effects::Exclusive, None, way_to(AttemptStateName::Succeeded));
    let broken = |damage: fn(&mut Job)| {
        let mut job = whole.clone();
        damage(&mut job);
        job.unsound()
    };
    assert_eq!(broken(|_| {}), None);
    assert!(broken(|job| job.slot = Slot::Cancelled).is_some());
    assert!(broken(|job| job.attempts[0].state = AttemptState::Running).is_some());
    assert!(broken(|job| job.attempts[0].number = 2).is_some());
    assert!(broken(|job| job.slot = Slot::Open { plan: None }).is_some());
    assert!(broken(|job| job.slot = Slot::Filled { by: OTHER, result: "1".into() }).is_some());
    let open = || Attempt { state: AttemptState::Running, ..whole_attempt() };
    let mut two = Job { attempts: vec![open(), Attempt { number: 2, ..open() }], ..whole.clone() };
    two.slot = Slot::Open { plan: None };
    assert_eq!(two.unsound(), Some("an exclusive job has two open attempts"));
    assert_eq!(Job { effects: Effects::Racing, ..two }.unsound(), None);
}

fn whole_attempt() -> Attempt {
    after(Effects::Exclusive, None, way_to(AttemptStateName::Starting)).attempts.remove(0)
}
