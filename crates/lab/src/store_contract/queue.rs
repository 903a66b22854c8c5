//! Who comes next: claims, due times, deadlines, and what a dead node left behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use onejob::store::{Claim, Claimed, Record, Store, Submit};
use onejob_core::{AttemptState, JobId, JobState, Millis, NodeId, Plan, Slot, Start, Trigger, Verdict, What};

use super::ground::{Ground, HERE, NOW, contracts, does, job, kinds, made, plan, running, succeeded};

async fn claim(ground: &Ground, store: &Store, provider: &str, slots: usize, at: Millis) -> Claimed {
    let attempts = (0..slots).map(|_| ground.attempt_id()).collect();
    store.claim(Claim { provider: provider.into(), attempts, node: HERE, contracts: contracts(), at }).await.unwrap()
}

fn ids(records: &[Arc<Record>]) -> Vec<JobId> {
    records.iter().map(|record| record.job.id).collect()
}

async fn queue(ground: &Ground, store: &Store, priority: i32, due_at: Millis) -> JobId {
    let key = format!("key-{}", ground.id());
    made(store, Submit { priority, plan: plan("main", due_at), ..ground.wish("ann", &key) }).await.job.id
}

pub async fn a_claim_serves_by_priority_then_due_time_then_age(ground: &Ground) {
    let store = ground.store();
    let low = queue(ground, &store, -5, NOW - 100).await;
    let late = queue(ground, &store, 0, NOW).await;
    let early = queue(ground, &store, 0, NOW - 50).await;
    let younger = queue(ground, &store, 0, NOW).await;
    let high = queue(ground, &store, 100, NOW).await;
    let future = queue(ground, &store, 100, NOW + 1).await;
    let claimed = claim(ground, &store, "main", 10, NOW).await;
    assert_eq!(ids(&claimed.records), [high, early, late, younger, low]);
    assert_eq!(claimed.next_due, Some(NOW + 1));
    for record in &claimed.records {
        assert_eq!(record.job.attempts.last().unwrap().state, AttemptState::Starting);
        assert_eq!(job(&store, record.job.id).await, *record);
    }
    assert_eq!(job(&store, future).await.job.state(), JobState::Queued);
}

pub async fn a_claim_takes_what_it_has_slots_for_and_says_what_is_left(ground: &Ground) {
    let store = ground.store();
    let mut queued = Vec::new();
    for number in 0..5 {
        queued.push(queue(ground, &store, 0, NOW - 50 + number).await);
    }
    let first = claim(ground, &store, "main", 2, NOW).await;
    assert_eq!((ids(&first.records), first.next_due), (queued[..2].to_vec(), Some(NOW - 48)));
    let none = claim(ground, &store, "main", 0, NOW).await;
    assert_eq!((none.records.len(), none.next_due), (0, Some(NOW - 48)));
    let rest = claim(ground, &store, "main", 5, NOW).await;
    assert_eq!((ids(&rest.records), rest.next_due), (queued[2..].to_vec(), None));
    assert_eq!(claim(ground, &store, "main", 5, NOW).await, Claimed::default());
}

pub async fn a_claim_takes_nothing_that_is_not_due_and_says_when(ground: &Ground) {
    let store = ground.store();
    queue(ground, &store, 50, NOW + 20).await;
    queue(ground, &store, -50, NOW + 10).await;
    let claimed = claim(ground, &store, "main", 5, NOW).await;
    assert_eq!((claimed.records.len(), claimed.next_due), (0, Some(NOW + 10)));
    // What is due in a lower line is not held up by what is not due in a higher one.
    let claimed = claim(ground, &store, "main", 5, NOW + 10).await;
    assert_eq!((claimed.records.len(), claimed.next_due), (1, Some(NOW + 20)));
}

pub async fn a_claim_leaves_other_providers_alone(ground: &Ground) {
    let store = ground.store();
    let proof = ground.certify(&store, "backup").await;
    let certified = Plan { certificate: Some(proof), ..plan("backup", NOW) };
    let elsewhere = made(&store, Submit { plan: certified, ..ground.wish("ann", "elsewhere") }).await.job.id;
    let here = queue(ground, &store, 0, NOW).await;
    assert_eq!(ids(&claim(ground, &store, "main", 5, NOW).await.records), [here]);
    let claimed = claim(ground, &store, "backup", 5, NOW).await;
    assert_eq!(ids(&claimed.records), [elsewhere]);
    let attempt = &claimed.records[0].job.attempts[0];
    assert_eq!((&*attempt.provider, &*attempt.primary), ("backup", "main"));
    assert_eq!((attempt.certificate, attempt.by_hand, attempt.node), (Some(proof), false, HERE));
}

pub async fn a_job_that_may_not_start_does_not_hold_up_the_line(ground: &Ground) {
    let store = ground.store();
    let expired = Submit { deadline: Some(NOW - 1), priority: 9, ..ground.wish("ann", "expired") };
    let expired = made(&store, expired).await.job.id;
    let good = queue(ground, &store, 0, NOW).await;
    let claimed = claim(ground, &store, "main", 1, NOW).await;
    assert_eq!((ids(&claimed.records), claimed.next_due), (vec![good], None));
    assert_eq!(does(&store, expired, What::DeadlinePassed).await.1, Verdict::Expired);
}

pub async fn two_claims_never_get_the_same_job(ground: &Ground) {
    let store = ground.store();
    for _ in 0..40 {
        queue(ground, &store, 0, NOW).await;
    }
    let claims: Vec<_> = (0..8)
        .map(|_| {
            let (store, attempts) = (store.clone(), (0..8).map(|_| ground.attempt_id()).collect());
            let wish = Claim { provider: "main".into(), attempts, node: HERE, contracts: contracts(), at: NOW };
            tokio::spawn(async move { store.claim(wish).await.unwrap() })
        })
        .collect();
    let mut got = Vec::new();
    for claimed in claims {
        got.extend(ids(&claimed.await.unwrap().records));
    }
    assert_eq!((got.len(), got.into_iter().collect::<BTreeSet<_>>().len()), (40, 40));
}

pub async fn the_reaper_turns_attempts_of_other_nodes_unknown(ground: &Ground) {
    let store = ground.store();
    let mut theirs = Vec::new();
    for node in [NodeId(1), NodeId(0xffff_ffff)] {
        let start = Start { node, ..ground.start("main", Trigger::Plan) };
        let key = format!("their-{}", node.0);
        theirs.push(made(&store, Submit { start: Some(start), ..ground.wish("ann", &key) }).await);
    }
    does(&store, theirs[0].job.id, running(theirs[0].job.attempts[0].id)).await;
    let ours = ground.starting(&store, "ours").await;
    let queued = made(&store, ground.wish("ann", "queued")).await;
    let reaped = store.reap(HERE, NOW + 5, 10).await.unwrap();
    assert_eq!(ids(&reaped), [theirs[0].job.id, theirs[1].job.id]);
    for record in &reaped {
        assert_eq!(record.job.state(), JobState::Unknown);
        assert_eq!(job(&store, record.job.id).await, *record);
        assert_eq!(kinds(&store, record.job.id).await, ["unknown"]);
    }
    assert_eq!(store.reap(HERE, NOW + 5, 10).await.unwrap(), []);
    assert_eq!((job(&store, ours.job.id).await, job(&store, queued.job.id).await), (ours, queued));
    // The dead node's answer was on its way all the same.
    let attempt = reaped[0].job.attempts[0].id;
    assert_eq!(does(&store, reaped[0].job.id, succeeded(attempt, "1")).await.1, Verdict::Won);
}

pub async fn the_reaper_works_in_bounded_batches(ground: &Ground) {
    let store = ground.store();
    for number in 0..5 {
        ground.starting(&store, &format!("key-{number}")).await;
    }
    let mut batches = Vec::new();
    loop {
        let reaped = store.reap(NodeId(7), NOW, 2).await.unwrap().len();
        if reaped == 0 {
            break;
        }
        batches.push(reaped);
    }
    assert_eq!(batches, [2, 2, 1]);
}

pub async fn deadlines_of_queued_jobs_come_earliest_first(ground: &Ground) {
    let store = ground.store();
    let wish = |key: &str, deadline| Submit { deadline, ..ground.wish("ann", key) };
    let late = made(&store, wish("late", Some(NOW + 20))).await.job.id;
    let early = made(&store, wish("early", Some(NOW + 10))).await.job.id;
    let wishes =
        [wish("none", None), Submit { start: Some(ground.start("main", Trigger::Plan)), ..wish("on", Some(NOW + 5)) }];
    for other in wishes {
        made(&store, other).await;
    }
    assert_eq!(store.queued_deadlines(10).await.unwrap(), [(early, NOW + 10), (late, NOW + 20)]);
    assert_eq!(store.queued_deadlines(1).await.unwrap(), [(early, NOW + 10)]);
    does(&store, early, What::Cancel).await;
    assert_eq!(store.queued_deadlines(10).await.unwrap(), [(late, NOW + 20)]);
}

pub async fn awaited_providers_are_those_of_queued_jobs(ground: &Ground) {
    let store = ground.store();
    assert!(store.awaited_providers().await.unwrap().is_empty());
    for (provider, key) in [("zeta", "1"), ("main", "2"), ("alpha", "3"), ("main", "4")] {
        made(&store, Submit { plan: plan(provider, NOW + 60), ..ground.wish("ann", key) }).await;
    }
    ground.starting(&store, "5").await;
    let awaited = store.awaited_providers().await.unwrap();
    assert_eq!(awaited.iter().map(|p| &**p).collect::<Vec<_>>(), ["alpha", "main", "zeta"]);
    claim(ground, &store, "main", 9, NOW + 60).await;
    assert_eq!(store.awaited_providers().await.unwrap().len(), 2);
    let slot = &store.list_jobs(super::ground::all_jobs()).await.unwrap()[1].job.slot;
    assert_eq!(*slot, Slot::Open { plan: None });
}
