//! From a checked request to a job: concurrent duplicates join the one in flight, and where a slot
//! is free the first attempt starts in the same commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use onejob_core::{AttemptId, Millis, Start, Text, Trigger, opening};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Engine, Inner, attempt, detached};
use crate::config::ProviderKind;
use crate::contract::{OutputContract, Violation};
use crate::id;
use crate::intent::Intent;
use crate::store::{Record, StoreError, Submit, Submitted};

/// A checked wish for a job.
#[derive(Clone, Debug)]
pub struct Order {
    /// Who wants it.
    pub owner: Text,
    /// The owner's name for the intent.
    pub idempotency_key: Text,
    /// What is asked; its task is configured and its pinned provider, if any, is one of the task's.
    pub intent: Intent,
    /// The caller's own notes, a JSON object.
    pub metadata: Text,
    /// Higher is sooner, -100 to 100.
    pub priority: i32,
    /// No attempt before this moment.
    pub run_at: Option<Millis>,
    /// No attempt starts after this moment.
    pub deadline: Option<Millis>,
}

/// What became of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ordered {
    /// What the store said.
    Stored(Submitted),
    /// The engine does not take it; nothing was written.
    Refused(Refusal),
}

/// Why an order is not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// This node is stopping. Try again with the same key.
    #[error("this node is stopping: try again with the same key")]
    Stopping,
    /// The task is not configured.
    #[error("no such task is configured")]
    NoSuchTask,
    /// The task's provider is of a kind that this build cannot call yet.
    #[error("the task's provider is of a kind that this build cannot call yet")]
    NotSupported,
}

type Key = (Text, Text);
type InFlight = watch::Receiver<Option<Result<Submitted, StoreError>>>;

/// Submits in flight on this node, by owner and key.
#[derive(Default)]
pub(crate) struct Joins(Mutex<HashMap<Key, InFlight>>);

/// Removes its entry when the submit has ended, however it ended.
struct Leading<'a> {
    joins: &'a Joins,
    key: Key,
    answer: watch::Sender<Option<Result<Submitted, StoreError>>>,
}

enum Role<'a> {
    Lead(Leading<'a>),
    Follow(InFlight),
}

impl Joins {
    fn enter(&self, key: Key) -> Role<'_> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(in_flight) = entries.get(&key) {
            return Role::Follow(in_flight.clone());
        }
        let (answer, in_flight) = watch::channel(None);
        entries.insert(key.clone(), in_flight);
        Role::Lead(Leading { joins: self, key, answer })
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.joins.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl Engine {
    /// Makes the job of an order, or finds it.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; safe to try again with the same key.
    pub async fn submit(&self, order: Order) -> Result<Ordered, StoreError> {
        let received = Instant::now();
        if self.inner.draining() {
            return Ok(Ordered::Refused(Refusal::Stopping));
        }
        let inner = self.inner.clone();
        detached(async move { inner.submit(order, received).await }).await
    }
}

impl Inner {
    async fn submit(self: &Arc<Inner>, order: Order, received: Instant) -> Result<Ordered, StoreError> {
        let key = (order.owner.clone(), order.idempotency_key.clone());
        match self.joins.enter(key) {
            Role::Lead(leading) => {
                let answer = self.store_order(order, received).await;
                if let Ok(Ordered::Stored(stored)) = &answer {
                    leading.answer.send_replace(Some(Ok(stored.clone())));
                }
                answer
            }
            Role::Follow(mut in_flight) => {
                let found = match in_flight.wait_for(Option::is_some).await {
                    Ok(answer) => answer.clone(),
                    // The leader was refused or failed: ask for ourselves.
                    Err(_) => None,
                };
                match found {
                    Some(Ok(Submitted::New(record) | Submitted::Same(record)))
                        if record.intent.as_ref().is_some_and(|i| i.fingerprint == order.intent.fingerprint) =>
                    {
                        self.metrics.joined.inc();
                        self.join(&record, order, received).await
                    }
                    Some(
                        Ok(Submitted::New(_) | Submitted::Same(_) | Submitted::OtherIntent(_) | Submitted::Expired(_))
                        | Err(_),
                    )
                    | None => self.store_order(order, received).await,
                }
            }
        }
    }

    /// A duplicate of a submit that has just been answered: only counted.
    async fn join(self: &Arc<Inner>, record: &Record, order: Order, received: Instant) -> Result<Ordered, StoreError> {
        match self.store.count_duplicates(record.job.id, 1, self.now()).await? {
            Some(record) => {
                self.metrics.duplicates.inc();
                Ok(Ordered::Stored(Submitted::Same(record)))
            }
            None => self.store_order(order, received).await,
        }
    }

    async fn store_order(self: &Arc<Inner>, order: Order, received: Instant) -> Result<Ordered, StoreError> {
        let mut submit = match self.planned(order).await {
            Ok(submit) => submit,
            Err(refusal) => return Ok(Ordered::Refused(refusal)),
        };
        let (plan, at) = (&submit.plan, submit.at);
        let lane = self.lanes.get(&plan.provider).cloned();
        // What goes elsewhere is claimed, with a look at its certificate.
        let startable =
            plan.provider == plan.primary && plan.due_at <= at && submit.deadline.is_none_or(|deadline| deadline > at);
        let slot = lane.as_ref().filter(|_| startable).and_then(|lane| self.slot_in_line(lane));
        submit.start = slot.as_ref().map(|_| Start {
            attempt: id::new_attempt_id(),
            provider: plan.provider.clone(),
            primary: plan.primary.clone(),
            certificate: plan.certificate,
            trigger: Trigger::Plan,
            node: self.member.node(),
        });
        let has_deadline = submit.deadline.is_some();
        let started = submit.start.as_ref().map(|start| start.attempt);
        let submitted = self.store.submit(submit).await.inspect_err(|error| self.not_stored(error, started))?;
        match &submitted {
            Submitted::New(record) => {
                self.metrics.job("created");
                match (lane, slot) {
                    (Some(lane), Some(slot)) => {
                        attempt::spawn(self, &lane, slot, record.clone());
                        self.metrics.start_seconds.observe(received.elapsed().as_secs_f64());
                    }
                    (Some(_) | None, Some(_) | None) => self.expect(record),
                }
                if has_deadline {
                    self.sweep.notify_waiters();
                }
                self.changes.publish(record);
            }
            Submitted::Same(_) => {
                self.metrics.duplicates.inc();
            }
            Submitted::OtherIntent(_) => {
                self.metrics.conflicts.inc();
            }
            Submitted::Expired(_) => {}
        }
        Ok(Ordered::Stored(submitted))
    }

    /// What the store is asked for; it waits in line until a start is added.
    pub(super) async fn planned(&self, order: Order) -> Result<Submit, Refusal> {
        let task = self.config.tasks.get(&order.intent.task).ok_or(Refusal::NoSuchTask)?;
        let at = self.now();
        let policy = self.opening_policy(task, order.intent.provider.as_deref(), at, order.run_at).await;
        let plan = opening(&policy, at, order.run_at);
        let plan = plan.ok_or(Refusal::NoSuchTask)?;
        let kind = self.config.providers.get(&plan.provider).map(|p| &p.kind);
        if matches!(kind, None | Some(ProviderKind::Worker)) {
            return Err(Refusal::NotSupported);
        }
        Ok(Submit {
            id: id::new_job_id(),
            owner: order.owner,
            idempotency_key: order.idempotency_key,
            intent: order.intent,
            metadata: order.metadata,
            priority: order.priority,
            run_at: order.run_at,
            deadline: order.deadline,
            effects: task.effects,
            plan,
            start: None,
            at,
        })
    }

    /// After an error of a verb that may have recorded attempts.
    pub(super) fn not_stored(self: &Arc<Inner>, error: &StoreError, attempts: impl IntoIterator<Item = AttemptId>) {
        self.metrics.store_errors.inc();
        if let StoreError::OutcomeUnknown(_) = error {
            attempt::disown(self, attempts.into_iter().collect());
        }
    }
}

/// The input of a stored job. It was parsed before it was stored; a job without intent has none.
pub(crate) fn input_of(record: &Record) -> Value {
    let text = record.intent.as_ref().map_or("null", |intent| &intent.input);
    crate::json::parse_stored(text).unwrap_or(Value::Null)
}

/// An output as it is to be stored, if the contract takes it. An input can be large: it is read only where
/// somebody looks at it.
pub(crate) fn accepted(contract: &OutputContract, record: &Record, output: Value) -> Result<Value, Violation> {
    if contract.demands_anything() { contract.accept(&input_of(record), output) } else { Ok(output) }
}
