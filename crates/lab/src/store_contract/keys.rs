//! R1, R2, R3, duplicates, and cancelling by key.

use std::collections::BTreeSet;
use std::sync::Arc;

use onejob::intent::Fingerprint;
use onejob::store::{Applied, StoreError, Submit, Submitted};
use onejob_core::{FailureClass, JobId, JobState, Slot, Verdict, What};
use serde_json::json;

use super::ground::{
    Ground, NOW, all_jobs, does, failed, intent, job, kinds, made, notice, running, silent, succeeded,
};

pub async fn r1_a_key_names_one_job(ground: &Ground) {
    let store = ground.store();
    let first = made(&store, ground.wish("ann", "click")).await;
    let again = store.submit(ground.wish("ann", "click")).await.unwrap();
    let Submitted::Same(again) = again else { panic!("{again:?}") };
    assert_eq!(again.job.id, first.job.id);
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap().len(), 1);
}

pub async fn r1_owners_do_not_share_keys(ground: &Ground) {
    let store = ground.store();
    let ann = made(&store, ground.wish("ann", "click")).await;
    let bob = made(&store, ground.wish("bob", "click")).await;
    assert_ne!(ann.job.id, bob.job.id);
    // Not even where one text ends and the other begins is forgotten.
    made(&store, ground.wish("annc", "lick")).await;
}

pub async fn r1_many_posts_of_one_key_at_once_make_one_job(ground: &Ground) {
    let store = ground.store();
    let posts: Vec<_> = (0..64)
        .map(|_| {
            let (store, wish) = (store.clone(), ground.started_wish("ann", "click"));
            tokio::spawn(async move { store.submit(wish).await.unwrap() })
        })
        .collect();
    let (mut new, mut ids) = (0, BTreeSet::new());
    for post in posts {
        match post.await.unwrap() {
            Submitted::New(record) => {
                new += 1;
                ids.insert(record.job.id);
            }
            Submitted::Same(record) => {
                ids.insert(record.job.id);
            }
            other @ (Submitted::OtherIntent(_) | Submitted::Expired(_)) => panic!("{other:?}"),
        }
    }
    assert_eq!((new, ids.len()), (1, 1));
    let jobs = store.list_jobs(all_jobs()).await.unwrap();
    assert_eq!((jobs.len(), jobs[0].duplicates, jobs[0].job.attempts.len()), (1, 63, 1));
}

pub async fn r1_keys_are_compared_byte_by_byte(ground: &Ground) {
    let store = ground.store();
    let keys =
        ["click", "Click", "click ", " click", "clic", "clíck", "cli\u{301}ck", "1", "01", "1.0", "a\u{1}b", "a"];
    for key in keys {
        made(&store, ground.wish("ann", key)).await;
    }
}

pub async fn r2_the_same_key_with_another_input_is_refused(ground: &Ground) {
    let store = ground.store();
    let first = made(&store, ground.wish("ann", "click")).await;
    let other = Submit { intent: intent(&json!({"n": 2})), ..ground.wish("ann", "click") };
    let digest = other.intent.fingerprint.digest;
    let answer = store.submit(other).await.unwrap();
    assert_eq!(answer, Submitted::OtherIntent(first.clone()));
    assert_eq!(kinds(&store, first.job.id).await, ["conflict"]);
    let detail = notice(&store, first.job.id, "conflict").await.detail;
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(detail.contains(&hex), "{detail}");
}

pub async fn conflicts_beyond_a_hundred_are_refused_and_not_noted(ground: &Ground) {
    let store = ground.store();
    let first = made(&store, ground.wish("ann", "click")).await;
    for n in 0..105 {
        let other = Submit { intent: intent(&json!({ "n": n, "other": true })), ..ground.wish("ann", "click") };
        assert_eq!(store.submit(other).await.unwrap(), Submitted::OtherIntent(first.clone()));
    }
    assert_eq!(kinds(&store, first.job.id).await.len(), 100);
    store.submit(ground.wish("ann", "click")).await.unwrap();
    assert_eq!(kinds(&store, first.job.id).await.last().map(String::as_str), Some("duplicate"), "other kinds are");
}

pub async fn r2_the_same_key_with_another_input_is_refused_in_every_state(ground: &Ground) {
    let store = ground.store();
    let mut jobs: Vec<(&str, JobId)> = Vec::new();
    jobs.push(("queued", made(&store, ground.wish("ann", "queued")).await.job.id));
    for key in ["running", "unknown", "succeeded", "failed", "cancelled"] {
        let record = ground.starting(&store, key).await;
        let (id, attempt) = (record.job.id, record.job.attempts[0].id);
        let what = match key {
            "running" => running(attempt),
            "unknown" => silent(attempt),
            "succeeded" => succeeded(attempt, "1"),
            "failed" => failed(attempt, FailureClass::Invalid),
            _ => What::Cancel,
        };
        does(&store, id, what).await;
        jobs.push((key, id));
    }
    for (key, id) in jobs {
        let before = job(&store, id).await;
        assert_eq!(before.job.state().as_str(), key);
        let other = Submit { intent: intent(&json!({"n": 2})), ..ground.started_wish("ann", key) };
        let answer = store.submit(other).await.unwrap();
        assert_eq!(answer, Submitted::OtherIntent(before.clone()), "{key}");
        assert_eq!(job(&store, id).await, before, "{key}");
        let same = store.submit(ground.started_wish("ann", key)).await.unwrap();
        assert!(matches!(same, Submitted::Same(_)), "{key}: {same:?}");
    }
}

pub async fn r2_another_version_of_the_fingerprint_is_another_intent(ground: &Ground) {
    let store = ground.store();
    made(&store, ground.wish("ann", "click")).await;
    let mut other = ground.wish("ann", "click");
    other.intent.fingerprint = Fingerprint { version: 2, ..other.intent.fingerprint };
    assert!(matches!(store.submit(other).await.unwrap(), Submitted::OtherIntent(_)));
}

pub async fn r3_a_refused_intent_changes_nothing(ground: &Ground) {
    let store = ground.store();
    let first =
        made(&store, Submit { metadata: r#"{"a":1}"#.into(), priority: 7, ..ground.wish("ann", "click") }).await;
    let other = Submit {
        intent: intent(&json!({"n": 2})),
        metadata: r#"{"b":2}"#.into(),
        priority: -3,
        run_at: Some(5),
        at: NOW + 9,
        ..ground.started_wish("ann", "click")
    };
    store.submit(other).await.unwrap();
    assert_eq!(job(&store, first.job.id).await, first);
}

pub async fn duplicates_are_counted_and_noted_once(ground: &Ground) {
    let store = ground.store();
    let first = made(&store, ground.wish("ann", "click")).await;
    for times in 1..=3 {
        let Submitted::Same(record) = store.submit(ground.wish("ann", "click")).await.unwrap() else { panic!() };
        assert_eq!(record.duplicates, times);
    }
    assert_eq!(job(&store, first.job.id).await.duplicates, 3);
    assert_eq!(kinds(&store, first.job.id).await, ["duplicate"]);
}

pub async fn joined_duplicates_are_counted_together(ground: &Ground) {
    let store = ground.store();
    let id = made(&store, ground.wish("ann", "click")).await.job.id;
    let none = store.count_duplicates(id, 0, NOW).await.unwrap().unwrap();
    assert_eq!((none.duplicates, kinds(&store, id).await.len()), (0, 0));
    let some = store.count_duplicates(id, 63, NOW).await.unwrap().unwrap();
    let more = store.count_duplicates(id, 2, NOW).await.unwrap().unwrap();
    assert_eq!((some.duplicates, more.duplicates), (63, 65));
    assert_eq!(kinds(&store, id).await, ["duplicate"]);
    assert_eq!(store.count_duplicates(ground.job_id(), 1, NOW).await.unwrap(), None);
}

pub async fn a_key_cancelled_before_its_post_leaves_a_cancelled_job(ground: &Ground) {
    let store = ground.store();
    let id = ground.job_id();
    let done = store.cancel_by_key("ann".into(), "click".into(), id, NOW).await.unwrap();
    let Applied::Done { record, verdict: Verdict::Cancelled } = done else { panic!("{done:?}") };
    assert_eq!((record.job.id, record.job.state(), record.intent.is_none()), (id, JobState::Cancelled, true));
    assert_eq!(job(&store, id).await, record);
    let again = store.cancel_by_key("ann".into(), "click".into(), ground.job_id(), NOW).await.unwrap();
    assert_eq!(again, Applied::Done { record, verdict: Verdict::AlreadySo });
}

pub async fn a_post_after_its_cancel_fills_the_intent_in_once(ground: &Ground) {
    let store = ground.store();
    let id = ground.job_id();
    store.cancel_by_key("ann".into(), "click".into(), id, NOW).await.unwrap();
    let late = Submit { metadata: r#"{"a":1}"#.into(), at: NOW + 5, ..ground.started_wish("ann", "click") };
    let Submitted::Same(record) = store.submit(late.clone()).await.unwrap() else { panic!() };
    assert_eq!((record.job.id, record.job.state(), record.job.attempts.len()), (id, JobState::Cancelled, 0));
    assert_eq!(record.intent, Some(late.intent.clone()));
    assert_eq!((record.duplicates, record.metadata.clone()), (0, late.metadata.clone()));
    assert_eq!(job(&store, id).await, record);
    // From here on it is a job like any other.
    let Submitted::Same(record) = store.submit(late.clone()).await.unwrap() else { panic!() };
    assert_eq!(record.duplicates, 1);
    let other = Submit { intent: intent(&json!({"n": 2})), ..late };
    assert!(matches!(store.submit(other).await.unwrap(), Submitted::OtherIntent(_)));
}

pub async fn cancel_by_key_closes_the_job_and_repeats_itself(ground: &Ground) {
    let store = ground.store();
    let id = ground.starting(&store, "click").await.job.id;
    for verdict in [Verdict::Cancelled, Verdict::AlreadySo] {
        let done = store.cancel_by_key("ann".into(), "click".into(), ground.job_id(), NOW).await.unwrap();
        let Applied::Done { record, verdict: said } = done else { panic!("{done:?}") };
        assert_eq!((said, record.job.id, &record.job.slot), (verdict, id, &Slot::Cancelled));
    }
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap().len(), 1);
}

pub async fn an_id_that_is_taken_is_refused_and_nothing_is_written(ground: &Ground) {
    let store = ground.store();
    let first = ground.starting(&store, "click").await;
    let same_job = Submit { id: first.job.id, ..ground.wish("ann", "other") };
    assert!(matches!(store.submit(same_job).await, Err(StoreError::Refused(_))));
    let mut same_attempt = ground.started_wish("ann", "another");
    same_attempt.start.as_mut().unwrap().attempt = first.job.attempts[0].id;
    assert!(matches!(store.submit(same_attempt).await, Err(StoreError::Refused(_))));
    let tombstone = store.cancel_by_key("ann".into(), "third".into(), first.job.id, NOW).await;
    assert!(matches!(tombstone, Err(StoreError::Refused(_))));
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap(), [Arc::clone(&first)]);
    made(&store, ground.started_wish("ann", "another")).await;
}
