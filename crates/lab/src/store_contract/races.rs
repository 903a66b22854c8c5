//! Two at once. The first decision is held open until the second is being made too: a lock that is
//! missing shows in every run.

use std::sync::Arc;

use onejob::store::{Applied, Record, Store, StoreError, Submitted};
use onejob_core::{AttemptStateName, Event, JobId, JobState, Slot, Trigger, Verdict, What};

use super::ground::{Gate, Ground, NOW, does, job, kinds, made, running, succeeded};

/// Sends `first`, waits until its decision is held, sends `second`, and gives both answers.
async fn race(gate: &Gate, store: &Store, id: JobId, first: What, second: What) -> (Applied, Applied) {
    let send = |what: What| {
        let store = store.clone();
        tokio::spawn(async move { store.apply(id, Event { at: NOW, what }).await.unwrap() })
    };
    gate.arm();
    let first = send(first);
    let waiting = gate.clone();
    tokio::task::spawn_blocking(move || waiting.wait_for_the_first()).await.unwrap();
    let second = send(second);
    (first.await.unwrap(), second.await.unwrap())
}

fn done(applied: Applied) -> (Arc<Record>, Verdict) {
    match applied {
        Applied::Done { record, verdict } => (record, verdict),
        other => panic!("expected it to be allowed: {other:?}"),
    }
}

pub async fn r6_of_two_completions_of_which_the_first_is_held_open_one_wins(ground: &Ground) {
    let gate = Gate::default();
    let store = ground.store_with(gate.hold());
    let (id, one, two) = ground.racing(&store, "click").await;
    let (first, second) = race(&gate, &store, id, succeeded(one, "1"), succeeded(two, "2")).await;
    assert_eq!(done(first).1, Verdict::Won);
    assert_eq!(done(second).1, Verdict::Superseded { by: Some(one) });
    let read = job(&store, id).await;
    assert_eq!(read.job.slot, Slot::Filled { by: one, result: "1".into() });
    assert_eq!(read.job.attempts[1].state.name(), AttemptStateName::Superseded);
    assert_eq!(kinds(&store, id).await, ["duplicate_effect"]);
}

pub async fn r4_of_two_starts_of_which_the_first_is_held_open_one_happens(ground: &Ground) {
    let gate = Gate::default();
    let store = ground.store_with(gate.hold());
    let id = made(&store, ground.wish("ann", "click")).await.job.id;
    let start = || What::Start(ground.start("main", Trigger::Plan));
    let (first, second) = race(&gate, &store, id, start(), start()).await;
    assert_eq!(done(first).1, Verdict::Started);
    assert!(matches!(second, Applied::Refused { .. }), "{second:?}");
    assert_eq!(job(&store, id).await.job.attempts.len(), 1);
}

pub async fn a_cancel_that_meets_a_held_completion_comes_second(ground: &Ground) {
    let gate = Gate::default();
    let store = ground.store_with(gate.hold());
    let record = ground.starting(&store, "click").await;
    let (id, attempt) = (record.job.id, record.job.attempts[0].id);
    let (first, second) = race(&gate, &store, id, succeeded(attempt, "1"), What::Cancel).await;
    assert_eq!(done(first).1, Verdict::Won);
    assert!(matches!(second, Applied::Refused { .. }), "{second:?}");
    assert_eq!(job(&store, id).await.job.state(), JobState::Succeeded);
}

/// A command that fails after it has written something stands in one batch with good ones.
pub async fn a_bad_command_never_fails_its_neighbours(ground: &Ground) {
    let gate = Gate::default();
    let store = ground.store_with(gate.hold());
    let record = ground.starting(&store, "click").await;
    let (id, taken) = (record.job.id, record.job.attempts[0].id);
    // The held decision keeps the store busy while the others gather behind it.
    gate.arm();
    let held = {
        let store = store.clone();
        tokio::spawn(async move { store.apply(id, Event { at: NOW, what: running(taken) }).await })
    };
    let waiting = gate.clone();
    tokio::task::spawn_blocking(move || waiting.wait_for_the_first()).await.unwrap();
    let posts: Vec<_> = (0..20)
        .map(|number| {
            let mut wish = ground.started_wish("ann", &format!("key-{number}"));
            if number % 5 == 0 {
                // The job can be inserted, its attempt cannot.
                wish.start.as_mut().unwrap().attempt = taken;
            }
            let store = store.clone();
            tokio::spawn(async move { (number, store.submit(wish).await) })
        })
        .collect();
    assert!(held.await.unwrap().is_ok());
    for post in posts {
        let (number, answer) = post.await.unwrap();
        match answer {
            Ok(Submitted::New(record)) if number % 5 != 0 => {
                assert_eq!(job(&store, record.job.id).await, record);
            }
            Err(StoreError::Refused(_)) if number % 5 == 0 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
    // Nothing of the bad ones stands: their keys are free.
    for number in [0, 5, 10, 15] {
        made(&store, ground.started_wish("ann", &format!("key-{number}"))).await;
    }
    does(&store, id, succeeded(taken, "1")).await;
}
