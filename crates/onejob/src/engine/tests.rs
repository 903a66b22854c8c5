//! What no client can provoke: a store that does not say whether it committed, sweeps with more to do
//! than fits one batch, callers that leave at the same moment.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use onejob_core::{AttemptStateName, Effects, JobId, JobState, NodeId, Phase, Start, Trigger, opening};

use super::lane::Lane;
use super::member::{self, Member};
use super::metrics::Metrics;
use super::wake::Changes;
use super::{Engine, Stage, attempt, clock, reconcile};
use crate::config::Config;
use crate::id;
use crate::intent::Intent;
use crate::provider::Progress;
use crate::store::{Changed, Heard, Hearing, MemoryStore, Store, Submit, Submitted, Work};

const CONFIG: &str =
    "[server]\nstore = \"memory:\"\n[providers.main]\nkind = \"simulated\"\n[tasks.plain]\nproviders = [\"main\"]\n";

async fn engine() -> Engine {
    Engine::open(Arc::new(Config::from_text(CONFIG).unwrap())).await.unwrap()
}

/// A job that waits in line.
fn submit(engine: &Engine, key: &str) -> Submit {
    let at = clock::now();
    Submit {
        id: id::new_job_id(),
        owner: "u".into(),
        idempotency_key: key.into(),
        intent: Intent::new("plain", &serde_json::json!({}), None),
        metadata: "{}".into(),
        priority: 0,
        run_at: None,
        deadline: None,
        effects: Effects::Exclusive,
        plan: opening(&engine.inner.config.tasks["plain"].policy(None), at, None).unwrap(),
        start: None,
        at,
    }
}

fn start(submit: &Submit) -> Start {
    Start {
        attempt: id::new_attempt_id(),
        provider: submit.plan.provider.clone(),
        primary: submit.plan.primary.clone(),
        certificate: None,
        trigger: Trigger::Plan,
        node: NodeId(1),
    }
}

#[tokio::test]
async fn r5_an_attempt_that_may_have_been_recorded_and_was_never_sent_is_not_left_open() {
    let engine = engine().await;
    let inner = &engine.inner;
    let mut submit = submit(&engine, "k");
    let start = start(&submit);
    let attempt = start.attempt;
    submit.start = Some(start);
    // It was committed, and the answer was lost.
    let Submitted::New(made) = inner.store.submit(submit).await.unwrap() else { panic!("the job is new") };
    assert_eq!(made.job.state(), JobState::Running);
    let mut interest = inner.changes.watch(made.job.id);

    attempt::disown(inner, vec![id::new_attempt_id(), attempt]);
    let after = interest.changed().await.unwrap();

    assert_eq!(after.job.attempts[0].state.name(), AttemptStateName::Failed);
    assert!(after.job.attempts[0].state.certainly_did_nothing());
    assert_eq!(after.job.state(), JobState::Queued, "the job goes on");
}

#[tokio::test]
async fn a_sweep_comes_back_at_once_when_more_is_due_than_it_looks_at() {
    let engine = engine().await;
    for n in 0..reconcile::SWEEP_BATCH + 1 {
        let mut submit = submit(&engine, &format!("k{n}"));
        submit.deadline = Some(submit.at - 1);
        engine.inner.store.submit(submit).await.unwrap();
    }
    let back = reconcile::expire_due(engine.inner.clone()).await.unwrap();
    assert!(back.is_some_and(|back| back <= clock::now()), "{back:?}");
    assert_eq!(reconcile::expire_due(engine.inner.clone()).await.unwrap(), None, "one was left, and it was the last");
    assert_eq!(engine.inner.store.queued_deadlines(1).await.unwrap(), []);
}

#[test]
fn nothing_is_kept_of_callers_that_leave_at_the_same_moment() {
    let changes = Arc::new(Changes::default());
    let gate = Arc::new(Barrier::new(2));
    let callers = [(); 2].map(|()| {
        let (changes, gate) = (changes.clone(), gate.clone());
        thread::spawn(move || {
            for job in 0..5_000 {
                let interest = changes.watch(JobId(job));
                gate.wait();
                drop(interest);
            }
        })
    });
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(changes.watched(), 0);
}

#[tokio::test]
async fn what_comes_due_while_the_dispatcher_looks_wakes_it_again() {
    let engine = engine().await;
    let lane: &Arc<Lane> = engine.inner.lanes.get("main").unwrap();
    let now = clock::now();
    // It has woken for a moment that is past, and looks.
    lane.will_return(Some(now - 5));
    lane.will_return(None);
    lane.expect(now + 100, now);
    // It found nothing more, and what it missed is told.
    lane.will_return(None);
    tokio::time::timeout(Duration::from_secs(20), lane.wake.notified()).await.expect("nobody woke it");
}

#[tokio::test]
async fn a_new_job_starts_at_once_beside_those_that_wait_for_a_claim_and_takes_no_slot_of_theirs() {
    let text = CONFIG.replace("kind = \"simulated\"", "kind = \"simulated\"\nconcurrency = 3");
    let engine = Engine::open(Arc::new(Config::from_text(&text).unwrap())).await.unwrap();
    let inner = &engine.inner;
    let lane = inner.lanes.get("main").unwrap();
    let now = clock::now();
    lane.expect(now, now);
    lane.expect(now, now);
    lane.expect(now + 60_000, now);

    let beside = inner.slot_in_line(lane);
    assert!(beside.is_some(), "three slots, and two jobs that are due");
    assert!(inner.slot_in_line(lane).is_none(), "the two that are left are theirs");
    drop(beside);

    // A claim that began when one of them was known, and met its end.
    lane.claimed_all(1);
    let taken = [inner.slot_in_line(lane), inner.slot_in_line(lane)];
    assert!(taken.iter().all(Option::is_some), "one still waits");
    assert!(inner.slot_in_line(lane).is_none());
    drop(taken);

    // A claim that used its only slot: nobody knows how many wait.
    lane.claimed_some(1, 1);
    assert!(inner.slot_in_line(lane).is_none(), "nobody overtakes those who wait");
    lane.claimed_all(0);
    assert!(inner.slot_in_line(lane).is_some());
    assert!(!lane.has_backlog());
}

#[tokio::test]
async fn r4_an_attempt_that_a_fault_of_ours_broke_off_is_unknown_and_not_alive_for_ever() {
    let engine = engine().await;
    let inner = &engine.inner;
    let mut submit = submit(&engine, "k");
    submit.start = Some(start(&submit));
    let Submitted::New(made) = inner.store.submit(submit).await.unwrap() else { panic!("the job is new") };
    let mut interest = inner.changes.watch(made.job.id);
    let lane = inner.lanes.get("main").unwrap();
    let slot = inner.lanes.try_slot(lane).unwrap();

    let broken = attempt::spawn_and_break(inner, lane, slot, made);
    assert!(broken.await.unwrap_err().is_panic());

    let after = interest.changed().await.unwrap();
    assert_eq!(after.job.state(), JobState::Unknown, "an operator can end it");
    assert_eq!(engine.in_flight(), 0, "the slot is given back");
}

#[tokio::test]
async fn an_engine_that_stops_gives_no_slot_and_keeps_none() {
    let engine = engine().await;
    let inner = &engine.inner;
    let lane = inner.lanes.get("main").unwrap();
    assert!(inner.slot(lane).is_some());
    inner.stage.send_replace(Stage::Draining);
    assert!(inner.slot(lane).is_none());
    inner.lanes.idle().await;
}

#[test]
fn every_metric_stands_in_the_docs() {
    let page = include_str!("../../../../docs/operating.md");
    let metrics = Metrics::new();
    // A family shows once it has a member.
    metrics.job("created");
    metrics.attempt("main", "started");
    let text = metrics.render(None, Work::default(), 0, 0).unwrap();
    let named: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert!(named.len() > 10, "{text}");
    for (name, kind) in named {
        let name = if kind == "counter" { format!("`{name}_total") } else { format!("`{name}") };
        assert!(page.contains(&name), "{name}");
    }
}

/// Whether the fence has fallen now.
async fn has_ended(fence: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = fence => true,
        () = std::future::ready(()) => false,
    }
}

#[tokio::test]
async fn r5_a_node_that_lost_its_lease_says_not_sent_only_of_what_it_did_not_send() {
    let member = Member::run_down();
    assert!(!member.may_start());
    for (phase, sent) in
        [(Phase::BeforeConnect, false), (Phase::Sending, true), (Phase::AwaitingHeaders, true), (Phase::InBody, true)]
    {
        let progress = Progress::new();
        let fenced = attempt::fenced(&member, member.node(), &progress);
        // The wait began before anything was sent, as it does in life.
        progress.advance(phase);
        assert_eq!(has_ended(fenced).await, !sent, "{phase:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_enters_anew_sends_nothing_of_its_former_life() {
    let store = Store::Memory(Arc::new(MemoryStore::new()));
    let member = Member::run_down();
    member.enter(&store).await.unwrap();
    let (former, progress) = (member.node(), Progress::new());
    let mut fence = std::pin::pin!(attempt::fenced(&member, former, &progress));
    assert!(member.may_send(former) && !has_ended(&mut fence).await);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!has_ended(&mut fence).await, "it has its lease");
    // Declared dead before its lease ended by its own clock: as soon as it is told so.
    member.enter(&store).await.unwrap();
    assert!(member.may_start() && !member.may_send(former));
    assert!(has_ended(&mut fence).await);
    // After a pause: the new lease does not stand for the old one.
    let former = member.node();
    let mut fence = std::pin::pin!(attempt::fenced(&member, former, &progress));
    assert!(!has_ended(&mut fence).await);
    tokio::time::advance(Duration::from_secs(60)).await;
    member.enter(&store).await.unwrap();
    assert!(has_ended(&mut fence).await);
}

#[tokio::test(start_paused = true)]
async fn hints_without_end_do_not_put_off_the_look_at_everything() {
    let (said, heard) = tokio::sync::broadcast::channel(8);
    let mut hearing = Hearing::of(heard);
    let began = tokio::time::Instant::now();
    let mut due = began + Duration::from_secs(1);
    let hint = Heard::Hint { providers: Vec::new(), jobs: Changed::These(Vec::new()) };
    let mut hints = 0;
    while began.elapsed() < Duration::from_secs(10) {
        said.send(hint.clone()).unwrap();
        tokio::time::advance(Duration::from_millis(100)).await;
        match member::next_look(&mut hearing, &mut due).await {
            Heard::Gap => break,
            heard => assert_eq!(heard, hint),
        }
        hints += 1;
    }
    assert!((5..=15).contains(&hints), "a look about every second: {hints} hints came before it");
}
