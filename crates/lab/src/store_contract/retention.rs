//! How finished jobs go and their keys stay (R12), and how a node asks what has changed.

use onejob::store::{Applied, Glance, Prune, Pruned, Submit, Submitted, Tombstone};
use onejob_core::{FailureClass, JobId, JobState, Verdict, What};

use super::ground::{Ground, NOW, all_jobs, does, failed, intent, job, made, silent, succeeded};

fn all() -> Prune {
    Prune { after: JobId(0), ended_before: NOW + 1, limit: 1_000 }
}

pub async fn r12_a_pruned_job_leaves_its_key_which_never_runs_again(ground: &Ground) {
    let store = ground.store();
    let won = ground.starting(&store, "won").await;
    does(&store, won.job.id, succeeded(won.job.attempts[0].id, "1")).await;
    let lost = ground.starting(&store, "lost").await;
    does(&store, lost.job.id, failed(lost.job.attempts[0].id, FailureClass::Invalid)).await;
    made(&store, ground.wish("ann", "closed")).await;
    store.cancel_by_key("ann".into(), "closed".into(), ground.job_id(), NOW).await.unwrap();
    store.cancel_by_key("ann".into(), "unseen".into(), ground.job_id(), NOW).await.unwrap();
    assert_eq!(store.prune(all()).await.unwrap(), Pruned { jobs: 4, next: None });
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap(), []);
    assert_eq!(store.job(won.job.id).await.unwrap(), None);
    assert_eq!(store.job_of_attempt(won.job.attempts[0].id).await.unwrap(), None);
    assert_eq!(store.notices(lost.job.id).await.unwrap(), []);
    for (key, state) in [("won", JobState::Succeeded), ("lost", JobState::Failed), ("unseen", JobState::Cancelled)] {
        // With a slot held too: nothing may be left of the start.
        for wish in [ground.wish("ann", key), ground.started_wish("ann", key)] {
            let Submitted::Expired(tombstone) = store.submit(wish).await.unwrap() else { panic!("{key} ran again") };
            assert_eq!((tombstone.state, tombstone.ended_at), (state, NOW));
        }
        let cancelled = store.cancel_by_key("ann".into(), key.into(), ground.job_id(), NOW).await.unwrap();
        assert!(matches!(cancelled, Applied::Expired(Tombstone { state: of, .. }) if of == state), "{cancelled:?}");
    }
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap(), []);
    assert_eq!(store.census().await.unwrap(), Default::default());
    // A key belongs to its owner.
    made(&store, ground.wish("bob", "won")).await;
}

pub async fn r12_an_open_or_unknown_job_is_never_pruned(ground: &Ground) {
    let store = ground.store();
    made(&store, ground.wish("ann", "queued")).await;
    ground.starting(&store, "starting").await;
    let unknown = ground.starting(&store, "unknown").await;
    does(&store, unknown.job.id, silent(unknown.job.attempts[0].id)).await;
    // Closed, and what was sent may still be alive.
    let cancelled = ground.starting(&store, "cancelled").await;
    does(&store, cancelled.job.id, What::Cancel).await;
    let (raced, winner, loser) = ground.racing(&store, "raced").await;
    does(&store, raced, succeeded(winner, "1")).await;
    let jobs = store.list_jobs(all_jobs()).await.unwrap();
    assert_eq!(store.prune(all()).await.unwrap(), Pruned::default());
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap(), jobs);
    does(&store, raced, succeeded(loser, "2")).await;
    assert_eq!(store.prune(all()).await.unwrap(), Pruned { jobs: 1, next: None });
    assert_eq!(store.job(raced).await.unwrap(), None);
}

pub async fn jobs_are_pruned_by_age_in_bounded_steps(ground: &Ground) {
    let store = ground.store();
    for number in 0..5 {
        let wish = Submit { intent: intent(&number.into()), ..ground.started_wish("ann", &format!("{number}")) };
        let record = made(&store, wish).await;
        if number != 1 {
            let verdict = does(&store, record.job.id, succeeded(record.job.attempts[0].id, "1")).await.1;
            assert_eq!(verdict, Verdict::Won);
        }
    }
    // None is old enough.
    assert_eq!(store.prune(Prune { ended_before: NOW, ..all() }).await.unwrap().jobs, 0);
    let (mut pruned, mut steps, mut after) = (0, 0, Some(JobId(0)));
    while let Some(from) = after {
        let step = store.prune(Prune { after: from, limit: 2, ..all() }).await.unwrap();
        (pruned, steps, after) = (pruned + step.jobs, steps + 1, step.next);
    }
    assert_eq!((pruned, steps), (4, 3));
    assert_eq!(store.list_jobs(all_jobs()).await.unwrap().len(), 1);
}

pub async fn what_changed_since_a_glance_is_read_at_once(ground: &Ground) {
    let store = ground.store();
    let mut seen = Vec::new();
    for key in ["a", "b", "c"] {
        seen.push(Glance::at(&*ground.starting(&store, key).await));
    }
    assert_eq!(store.jobs_unlike(seen.clone()).await.unwrap(), []);
    assert_eq!(store.jobs_unlike(Vec::new()).await.unwrap(), []);
    let attempt = job(&store, seen[1].job).await.job.attempts[0].id;
    let (after, _) = does(&store, seen[1].job, succeeded(attempt, "1")).await;
    seen.push(Glance { job: ground.job_id(), ..seen[0] });
    assert_eq!(store.jobs_unlike(seen).await.unwrap(), [after]);
}
