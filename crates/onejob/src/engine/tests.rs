//! What no client can provoke: a store that does not say whether it committed.

use std::sync::Arc;

use onejob_core::{AttemptStateName, Effects, JobState, NodeId, Start, Trigger, opening};

use super::{Engine, attempt, clock};
use crate::config::Config;
use crate::id;
use crate::intent::Intent;
use crate::store::{Submit, Submitted};

const CONFIG: &str =
    "[server]\nstore = \"memory:\"\n[providers.main]\nkind = \"simulated\"\n[tasks.plain]\nproviders = [\"main\"]\n";

#[tokio::test]
async fn r5_an_attempt_that_may_have_been_recorded_and_was_never_sent_is_not_left_open() {
    let engine = Engine::open(Arc::new(Config::from_text(CONFIG).unwrap())).await.unwrap();
    let inner = &engine.inner;
    let at = clock::now();
    let plan = opening(&inner.config.tasks["plain"].policy(None), at, None).unwrap();
    let start = Start {
        attempt: id::new_attempt_id(),
        provider: plan.provider.clone(),
        primary: plan.primary.clone(),
        certificate: None,
        trigger: Trigger::Plan,
        node: NodeId(1),
    };
    let attempt = start.attempt;
    let submit = Submit {
        id: id::new_job_id(),
        owner: "u".into(),
        idempotency_key: "k".into(),
        intent: Intent::new("plain", &serde_json::json!({}), None),
        metadata: "{}".into(),
        priority: 0,
        run_at: None,
        deadline: None,
        effects: Effects::Exclusive,
        plan,
        start: Some(start),
        at,
    };
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
