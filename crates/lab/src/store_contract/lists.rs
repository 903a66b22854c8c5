//! Reading: lists and their pages, notices, the census, the counters, the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use onejob::store::{AttemptFilter, JobFilter, ListedAttempt, Record, Store, StoreError, Submit};
use onejob_core::{AttemptStateName, Event, FailureClass, JobId, JobState, What};
use serde_json::json;

use super::ground::{Ground, NOW, all_jobs, does, failed, intent, job, made, plan, running, silent, succeeded};

/// Jobs of two owners and two tasks in every state.
async fn a_mixed_lot(ground: &Ground, store: &Store) -> Vec<Arc<Record>> {
    let mut jobs = Vec::new();
    for (number, state) in (0..).zip(JobState::ALL.into_iter().cycle().take(24)) {
        let owner = if number % 5 < 2 { "ann" } else { "bob" };
        let mut wish = ground.wish(owner, &format!("key-{number}"));
        wish.intent = onejob::intent::Intent::new(if number % 7 < 3 { "mail" } else { "poster" }, &json!(number), None);
        if state != JobState::Queued {
            wish.start = Some(ground.start("main", onejob_core::Trigger::Plan));
        }
        let record = made(store, wish).await;
        let (id, attempt) = (record.job.id, record.job.attempts.first().map(|a| a.id));
        let what = match (state, attempt) {
            (JobState::Running, Some(attempt)) => running(attempt),
            (JobState::Unknown, Some(attempt)) => silent(attempt),
            (JobState::Succeeded, Some(attempt)) => succeeded(attempt, "1"),
            (JobState::Failed, Some(attempt)) => failed(attempt, FailureClass::Invalid),
            (JobState::Cancelled, Some(_)) => What::Cancel,
            (_, _) => {
                jobs.push(record);
                continue;
            }
        };
        jobs.push(does(store, id, what).await.0);
    }
    jobs.reverse();
    jobs
}

pub async fn jobs_are_listed_newest_first_in_pages(ground: &Ground) {
    let store = ground.store();
    let jobs = a_mixed_lot(ground, &store).await;
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap(), jobs);
    for size in [1, 5, 23, 24, 25] {
        let (mut pages, mut before) = (Vec::new(), None);
        loop {
            let page = store.list_jobs(JobFilter { before, limit: size, ..all_jobs() }).await.unwrap();
            assert!(page.len() <= size);
            let Some(last) = page.last() else { break };
            before = Some(last.job.id);
            pages.extend(page);
        }
        assert_eq!(pages, jobs, "pages of {size}");
    }
    assert_eq!(store.list_jobs(JobFilter { limit: 0, ..all_jobs() }).await.unwrap(), []);
}

pub async fn jobs_are_filtered_by_everything_a_filter_names(ground: &Ground) {
    let store = ground.store();
    let jobs = a_mixed_lot(ground, &store).await;
    let mut filters = vec![all_jobs()];
    for owner in [None, Some("ann"), Some("bob"), Some("nobody")] {
        for task in [None, Some("mail"), Some("poster")] {
            for state in std::iter::once(None).chain(JobState::ALL.map(Some)) {
                for key in [None, Some("key-7"), Some("key-3")] {
                    filters.push(JobFilter {
                        owner: owner.map(Into::into),
                        task: task.map(Into::into),
                        state,
                        idempotency_key: key.map(Into::into),
                        before: Some(jobs[2].job.id),
                        limit: 3,
                    });
                }
            }
        }
    }
    for filter in filters {
        let keeps = |r: &&Arc<Record>| {
            filter.owner.as_ref().is_none_or(|owner| r.owner == *owner)
                && filter.task.as_ref().is_none_or(|task| r.intent.as_ref().unwrap().task == *task)
                && filter.state.is_none_or(|state| r.job.state() == state)
                && filter.idempotency_key.as_ref().is_none_or(|key| r.idempotency_key == *key)
                && filter.before.is_none_or(|before| r.job.id < before)
        };
        let expected: Vec<_> = jobs.iter().filter(keeps).take(filter.limit).cloned().collect();
        assert_eq!(store.list_jobs(filter.clone()).await.unwrap(), expected, "{filter:?}");
    }
}

/// Stores may choose another way when an owner has many jobs; nobody may notice.
pub async fn a_list_of_a_large_owner_is_a_list_all_the_same(ground: &Ground) {
    let store = ground.store();
    let mut posts = Vec::new();
    for number in 0..1_200 {
        let owner = if number % 100 == 0 { "small" } else { "large" };
        let (store, wish) = (store.clone(), ground.wish(owner, &format!("{:x}", number * 7_919 % 1_200)));
        posts.push(tokio::spawn(async move { made(&store, wish).await.job.id }));
    }
    let mut large: Vec<JobId> = Vec::new();
    for (number, post) in posts.into_iter().enumerate() {
        let id = post.await.unwrap();
        if number % 100 != 0 {
            large.push(id);
        }
    }
    large.sort();
    large.reverse();
    for (owner, expected) in [("large", &large[100..200]), ("small", &[][..])] {
        let filter = JobFilter { owner: Some(owner.into()), before: large.get(99).copied(), limit: 100, ..all_jobs() };
        let listed: Vec<JobId> = store.list_jobs(filter).await.unwrap().iter().map(|r| r.job.id).collect();
        if owner == "large" {
            assert_eq!(listed, expected);
        } else {
            assert!(listed.len() <= 12 && listed.is_sorted_by(|a, b| a > b));
        }
    }
}

pub async fn attempts_are_listed_newest_first_in_pages(ground: &Ground) {
    let store = ground.store();
    let jobs = a_mixed_lot(ground, &store).await;
    let expected = listed(&jobs);
    let everything = AttemptFilter { limit: 1_000, ..AttemptFilter::default() };
    assert_eq!(store.list_attempts(everything.clone()).await.unwrap(), expected);
    let page = AttemptFilter { before: Some(expected[3].attempt.id), limit: 4, ..everything };
    assert_eq!(store.list_attempts(page).await.unwrap(), expected[4..8]);
}

pub async fn attempts_are_filtered_by_everything_a_filter_names(ground: &Ground) {
    let store = ground.store();
    let all = listed(&a_mixed_lot(ground, &store).await);
    for owner in [None, Some("ann"), Some("nobody")] {
        for task in [None, Some("mail")] {
            for provider in [None, Some("main"), Some("backup")] {
                for state in std::iter::once(None).chain(AttemptStateName::ALL.map(Some)) {
                    let filter = AttemptFilter {
                        owner: owner.map(Into::into),
                        task: task.map(Into::into),
                        provider: provider.map(Into::into),
                        state,
                        before: Some(all[1].attempt.id),
                        limit: 3,
                    };
                    let keeps = |a: &&ListedAttempt| {
                        owner.is_none_or(|owner| &*a.owner == owner)
                            && task.is_none_or(|task| &*a.task == task)
                            && provider.is_none_or(|provider| &*a.attempt.provider == provider)
                            && state.is_none_or(|state| a.attempt.state.name() == state)
                            && a.attempt.id < all[1].attempt.id
                    };
                    let expected: Vec<_> = all.iter().filter(keeps).take(3).cloned().collect();
                    assert_eq!(store.list_attempts(filter.clone()).await.unwrap(), expected, "{filter:?}");
                }
            }
        }
    }
}

/// The attempts of records, newest first.
fn listed(jobs: &[Arc<Record>]) -> Vec<ListedAttempt> {
    let mut all: Vec<ListedAttempt> = Vec::new();
    for record in jobs {
        for attempt in &record.job.attempts {
            all.push(ListedAttempt {
                attempt: attempt.clone(),
                job: record.job.id,
                owner: record.owner.clone(),
                task: record.intent.as_ref().unwrap().task.clone(),
            });
        }
    }
    all.sort_by_key(|listed| std::cmp::Reverse(listed.attempt.id));
    all
}

pub async fn unknown_attempts_come_longest_first(ground: &Ground) {
    let store = ground.store();
    let mut order = Vec::new();
    for (number, since) in [30, 10, 20].into_iter().enumerate() {
        let record = ground.starting(&store, &format!("key-{number}")).await;
        let event = Event { at: NOW + since, what: silent(record.job.attempts[0].id) };
        store.apply(record.job.id, event).await.unwrap();
        order.push((since, record.job.attempts[0].id));
    }
    let mail = onejob::intent::Intent::new("mail", &json!(1), None);
    let other = made(&store, Submit { intent: mail, ..ground.started_wish("ann", "mail") }).await;
    does(&store, other.job.id, silent(other.job.attempts[0].id)).await;
    order.sort();
    let longest = store.unknown_longest("poster".into(), 10).await.unwrap();
    let ids: Vec<_> = longest.iter().map(|listed| listed.attempt.id).collect();
    assert_eq!(ids, order.iter().map(|o| o.1).collect::<Vec<_>>());
    assert_eq!(store.unknown_longest("poster".into(), 2).await.unwrap(), longest[..2]);
    assert_eq!(store.unknown_longest("nothing".into(), 2).await.unwrap(), []);
}

pub async fn a_job_is_found_by_its_attempts(ground: &Ground) {
    let store = ground.store();
    let (id, first, second) = ground.racing(&store, "click").await;
    let record = job(&store, id).await;
    assert_eq!(store.job_of_attempt(first).await.unwrap(), Some(record.clone()));
    assert_eq!(store.job_of_attempt(second).await.unwrap(), Some(record));
    assert_eq!(store.job_of_attempt(ground.attempt_id()).await.unwrap(), None);
}

pub async fn texts_are_kept_byte_by_byte(ground: &Ground) {
    let store = ground.store();
    let long = "ü\u{1f600}\0\r\n\t'\"\\ ".repeat(20_000);
    let mut wish = ground.started_wish("ann'; DROP TABLE jobs; --\u{1}", "click");
    wish.intent = intent(&json!({"long": long, "number": 1}));
    wish.intent.input = r#"{"number":1.000000000000000000000000001e400}"#.into();
    wish.metadata = format!("{{\"m\":{}}}", json!(long)).into();
    let record = made(&store, wish).await;
    let result = json!(long).to_string();
    let (record, _) = does(&store, record.job.id, succeeded(record.job.attempts[0].id, &result)).await;
    assert_eq!(job(&store, record.job.id).await, record);
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap(), [record]);
}

pub async fn the_census_counts_what_is_open(ground: &Ground) {
    let store = ground.store();
    assert_eq!(store.census().await.unwrap(), onejob::store::Census::default());
    a_mixed_lot(ground, &store).await;
    for (key, priority, provider) in [("a", 9, "main"), ("b", -9, "backup"), ("c", 0, "main")] {
        let due_at = NOW - 100 + i64::from(priority);
        made(&store, Submit { priority, plan: plan(provider, due_at), ..ground.wish("ann", key) }).await;
    }
    let mail = onejob::intent::Intent::new("mail", &json!(1), None);
    let record = made(&store, Submit { intent: mail, ..ground.started_wish("ann", "mail") }).await;
    let event = Event { at: NOW - 7, what: silent(record.job.attempts[0].id) };
    store.apply(record.job.id, event).await.unwrap();
    let census = store.census().await.unwrap();
    assert_eq!((census.queued_jobs, census.unknown_attempts), (7, 5));
    assert_eq!((census.oldest_due, census.oldest_unknown_since), (Some(NOW - 109), Some(NOW - 7)));
}

pub async fn work_is_counted(ground: &Ground) {
    let store = ground.store();
    let before = store.work();
    let mut ids = BTreeSet::new();
    for number in 0..10 {
        ids.insert(ground.starting(&store, &format!("key-{number}")).await.job.id);
    }
    let after = store.work();
    assert_eq!(after.commands - before.commands, 10);
    assert!(after.commits > before.commits && after.commits - before.commits <= 10);
    assert!(after.log_bytes >= before.log_bytes);
    store.ping().await.unwrap();
}

pub async fn a_closed_store_says_so(ground: &Ground) {
    let store = ground.store();
    let id = ground.starting(&store, "click").await.job.id;
    store.close().await;
    store.close().await;
    let write = store.submit(ground.wish("ann", "other")).await;
    assert!(matches!(write, Err(StoreError::Unavailable(_))), "{write:?}");
    let read = store.job(id).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
}
