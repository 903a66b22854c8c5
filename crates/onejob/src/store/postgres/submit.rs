//! New jobs: those that arrived together are inserted together, each with its first attempt if a slot is
//! held. What meets a job that is there already goes on as a command to that job.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use onejob_core::{Attempt, Event, JobId, Millis, Text, Verdict, What, decide};
use tokio::sync::oneshot;

use super::columns::{Known, bind_jobs, bind_starts, id, id_at, read_tombstone, text_at};
use super::command::{Command, Key};
use super::fault::Fault;
use super::lane::{RETRIES, Weigh, parts, step_aside};
use super::link::{Call, First, Link, Links, column, value};
use super::nodes::lease_of;
use super::{Shared, sql};
use crate::store::record::{cancelled_unseen, record_after};
use crate::store::row::JobRow;
use crate::store::{Applied, Record, Result, StoreError, Submit, Submitted, Tombstone};

/// A job to insert, and who wants to know.
pub(super) enum Order {
    /// A post.
    Submit(Box<Submit>, oneshot::Sender<Result<Submitted>>),
    /// A cancel by key: the job that it leaves where there is none.
    Cancel { owner: Text, idempotency_key: Text, new_id: JobId, at: Millis, reply: oneshot::Sender<Result<Applied>> },
}

impl Weigh for Order {
    fn bytes(&self) -> usize {
        match self {
            Order::Submit(submit, _) => submit.intent.input.len() + submit.metadata.len(),
            Order::Cancel { .. } => 0,
        }
    }
}

impl Order {
    fn key(&self) -> Key {
        match self {
            Order::Submit(submit, _) => (submit.owner.clone(), submit.idempotency_key.clone()),
            Order::Cancel { owner, idempotency_key, .. } => (owner.clone(), idempotency_key.clone()),
        }
    }

    /// The job as it is to be inserted.
    fn record(&self, starts: Starts) -> Record {
        match self {
            Order::Submit(submit, _) => {
                let record = submit.record();
                let start = submit.start_at_once().filter(|_| starts == Starts::AsAsked);
                let Some(start) = start else { return record };
                let event = Event { at: submit.at, what: What::Start(start) };
                match decide(&record.job, &event) {
                    Ok(change) => record_after(&record, change, submit.at),
                    // Not due yet, or not allowed: it waits in line.
                    Err(_) => record,
                }
            }
            Order::Cancel { owner, idempotency_key, new_id, at, .. } => {
                cancelled_unseen(*new_id, owner.clone(), idempotency_key.clone(), *at)
            }
        }
    }

    fn made(self, record: Arc<Record>) {
        // Whoever asked may be gone; what was committed stands.
        match self {
            Order::Submit(_, reply) => drop(reply.send(Ok(Submitted::New(record)))),
            Order::Cancel { reply, .. } => {
                drop(reply.send(Ok(Applied::Done { record, verdict: Verdict::Cancelled })));
            }
        }
    }

    fn expired(self, tombstone: Tombstone) {
        match self {
            Order::Submit(_, reply) => drop(reply.send(Ok(Submitted::Expired(tombstone)))),
            Order::Cancel { reply, .. } => drop(reply.send(Ok(Applied::Expired(tombstone)))),
        }
    }

    fn failed(self, error: StoreError) {
        match self {
            Order::Submit(_, reply) => drop(reply.send(Err(error))),
            Order::Cancel { reply, .. } => drop(reply.send(Err(error))),
        }
    }

    /// Its key is taken: it goes on to the job that has it.
    fn met(self) -> Command {
        match self {
            Order::Submit(submit, reply) => Command::Meet { submit, reply },
            Order::Cancel { owner, idempotency_key, new_id, at, reply } => {
                Command::CancelKey { owner, idempotency_key, new_id, at, reply }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Starts {
    AsAsked,
    /// This node holds no lease: what it takes in waits in line for another.
    None,
}

/// Whether attempts are sent before it is known which jobs were made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// Yes: their statement looks whether its job is there.
    Together,
    /// No: after a commit whose end is not known a job may be there from before.
    AfterJobs,
}

/// Inserts a batch of orders, answers those that made a job, and sends the others on.
pub(super) async fn insert(shared: &Arc<Shared>, onward: &flume::Sender<Command>, batch: Vec<Order>) {
    shared.counters.commands(batch.len());
    // Of one key the first is inserted; the others meet it.
    let mut firsts: BTreeMap<Key, Order> = BTreeMap::new();
    let mut others = Vec::new();
    let held = shared.waiting.keys();
    for order in batch {
        if !held.is_empty() && held.contains(&order.key()) {
            insert_alone(shared, onward, order);
            continue;
        }
        match firsts.entry(order.key()) {
            Entry::Occupied(_) => others.push(order),
            Entry::Vacant(free) => {
                free.insert(order);
            }
        }
    }
    let mut waiting = vec![firsts.into_values().collect::<Vec<Order>>()];
    while let Some(part) = waiting.pop() {
        if part.is_empty() {
            continue;
        }
        match settle(shared, &shared.lanes, part).await {
            Settled::Done(met) => others.extend(met),
            Settled::Split(part) => waiting.extend(parts(part)),
            Settled::Held(order) => {
                shared.waiting.note(order.key());
                insert_alone(shared, onward, order);
            }
        }
    }
    for order in others {
        // The lane ends after this one does.
        let _ = onward.send_async(order.met()).await;
    }
}

/// Somebody else's transaction holds this key and is not at its end: this order waits for it, and nobody
/// waits with it.
fn insert_alone(shared: &Arc<Shared>, onward: &flume::Sender<Command>, order: Order) {
    let Some(place) = shared.waiting.enter() else {
        return order.failed(StoreError::Unavailable("too many wait for keys that others hold".into()));
    };
    let (shared, onward) = (shared.clone(), onward.clone());
    tokio::spawn(async move {
        let _place = place;
        match settle(&shared, &shared.alone, vec![order]).await {
            Settled::Done(met) => {
                for order in met {
                    let _ = onward.send_async(order.met()).await;
                }
            }
            Settled::Split(orders) => drop(failed(orders, Fault::Held("not split".into()).into())),
            Settled::Held(order) => {
                shared.waiting.note(order.key());
                drop(failed(vec![order], Fault::Held("its end did not come in time".into()).into()));
            }
        }
    });
}

enum Settled {
    /// All that could be answered was; the keys of these are taken.
    Done(Vec<Order>),
    /// One of them fails, or waits, and nobody knows which.
    Split(Vec<Order>),
    /// Somebody else holds its key.
    Held(Order),
}

async fn settle(shared: &Shared, links: &Links, mut orders: Vec<Order>) -> Settled {
    let began = Instant::now();
    let (mut starts, mut sending, mut tries, mut was_away) = (Starts::AsAsked, Sending::Together, 0, false);
    let mut ambiguous: Option<String> = None;
    loop {
        let records: Vec<Arc<Record>> = orders.iter().map(|order| Arc::new(order.record(starts))).collect();
        let fault = match attempt(shared, links, &records, sending).await {
            Ok(Tried::Committed(made)) => return answered(shared, orders, records, &made),
            Ok(Tried::Expired(tombstones)) => {
                let (expired, rest): (Vec<_>, Vec<_>) =
                    orders.into_iter().partition(|order| tombstones.contains_key(&order.key()));
                for order in expired {
                    if let Some(tombstone) = tombstones.get(&order.key()) {
                        order.expired(*tombstone);
                    }
                }
                orders = rest;
                if orders.is_empty() {
                    return Settled::Done(Vec::new());
                }
                continue;
            }
            Err(fault) => fault,
        };
        match fault {
            Fault::Row(_) if orders.len() > 1 => return Settled::Split(orders),
            Fault::Held(_) if orders.len() > 1 && ambiguous.is_none() => return Settled::Split(orders),
            Fault::Held(_) if ambiguous.is_none() => match orders.pop() {
                Some(order) => return Settled::Held(order),
                None => return Settled::Done(Vec::new()),
            },
            Fault::NoLease => {
                starts = Starts::None;
                continue;
            }
            Fault::Retry(_) if tries < RETRIES => {
                tries += 1;
                step_aside(tries).await;
                continue;
            }
            // An idle connection may have died unseen.
            Fault::Away(_) if ambiguous.is_none() && !was_away => {
                was_away = true;
                continue;
            }
            Fault::Ambiguous(why) => {
                ambiguous = Some(why);
                sending = Sending::AfterJobs;
            }
            Fault::Row(_) | Fault::Stale(_) | Fault::Retry(_) | Fault::Held(_) | Fault::Away(_) => {
                if ambiguous.is_none() {
                    return failed(orders, fault.into());
                }
            }
        }
        // The same ids again: if the lost commit stands, they are found; if it is still on its way, the
        // insert waits for it.
        let Some(why) = ambiguous.clone() else { continue };
        if began.elapsed() > shared.options.resolve_within {
            return failed(orders, StoreError::OutcomeUnknown(why));
        }
        step_aside(8).await;
    }
}

fn failed(orders: Vec<Order>, error: StoreError) -> Settled {
    match &error {
        StoreError::Refused(why) => {
            tracing::error!(error = %why, "the store refused a command that the rules allow");
        }
        away @ (StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_)) => {
            tracing::warn!(error = %away, commands = orders.len(), "the store could not commit");
        }
    }
    for order in orders {
        order.failed(error.clone());
    }
    Settled::Done(Vec::new())
}

fn answered(shared: &Shared, orders: Vec<Order>, records: Vec<Arc<Record>>, made: &HashSet<u128>) -> Settled {
    let mut met = Vec::new();
    let mut new = Vec::new();
    for (order, record) in orders.into_iter().zip(records) {
        if made.contains(&record.job.id.0) {
            new.push(record.clone());
            order.made(record);
        } else {
            met.push(order);
        }
    }
    shared.remember(new.iter().map(|record| Known { record: record.clone(), revision: 0 }));
    shared.tell(&new);
    Settled::Done(met)
}

enum Tried {
    /// These ids are jobs now, by this commit.
    Committed(HashSet<u128>),
    /// Nothing was written: these keys are past retention.
    Expired(HashMap<Key, Tombstone>),
}

async fn attempt(
    shared: &Shared,
    links: &Links,
    records: &[Arc<Record>],
    sending: Sending,
) -> std::result::Result<Tried, Fault> {
    let mut link = links.get().await?;
    match write(shared, &mut link, records, sending).await {
        Ok(made) => {
            let tombstones = made.tombstones;
            if !tombstones.is_empty() {
                link.roll_back().await;
                return Ok(Tried::Expired(tombstones));
            }
            link.commit().await?;
            shared.counters.commit();
            Ok(Tried::Committed(made.ids))
        }
        Err(fault) => {
            if matches!(fault, Fault::Row(_) | Fault::NoLease | Fault::Held(_)) {
                link.roll_back().await;
            }
            Err(fault)
        }
    }
}

pub(super) struct Made {
    pub(super) ids: HashSet<u128>,
    pub(super) tombstones: HashMap<Key, Tombstone>,
}

pub(super) async fn write(
    shared: &Shared,
    link: &mut Link<'_>,
    records: &[Arc<Record>],
    sending: Sending,
) -> std::result::Result<Made, Fault> {
    let rows: Vec<JobRow> = records.iter().map(|record| JobRow::of(record)).collect();
    let starts = |made: Option<&HashSet<u128>>| -> Vec<(JobId, &Attempt)> {
        let of_made = records.iter().filter(|record| made.is_none_or(|made| made.contains(&record.job.id.0)));
        of_made.filter_map(|record| Some((record.job.id, record.job.attempts.last()?))).collect()
    };
    let all = starts(None);
    let node = lease_of(shared.node(), all.iter().map(|(_, attempt)| *attempt))?;
    let mut calls = vec![
        Call::new(&sql::SUBMIT, bind_jobs(&rows)),
        // After the insert: a key that was free for it had been pruned before, if ever it was taken.
        Call::new(&sql::TOMBSTONE, vec![column(&rows, |r| &*r.owner), column(&rows, |r| &*r.idempotency_key)]),
    ];
    if let Some(node) = node {
        calls.push(Call::new(&sql::LEASE, vec![value(id(node.0))]));
    }
    if sending == Sending::Together && !all.is_empty() {
        calls.push(Call::new(&sql::START, bind_starts(&all)));
    }
    let answers = link.run(First::Begin, &calls).await?;
    let ids: HashSet<u128> = answers[0].iter().map(|row| id_at(row, 0)).collect::<std::result::Result<_, _>>()?;
    let mut tombstones = HashMap::new();
    for row in &answers[1] {
        tombstones.insert((text_at(row, 0)?, text_at(row, 1)?), read_tombstone(row)?);
    }
    if node.is_some() && answers[2].is_empty() {
        return Err(Fault::NoLease);
    }
    let due = starts(Some(&ids));
    let started = match sending {
        Sending::Together if all.is_empty() => 0,
        Sending::Together => answers.last().map_or(0, Vec::len),
        Sending::AfterJobs if due.is_empty() => 0,
        Sending::AfterJobs => {
            let answers = link.run(First::GoOn, &[Call::new(&sql::START, bind_starts(&due))]).await?;
            answers.first().map_or(0, Vec::len)
        }
    };
    if started != due.len() && tombstones.is_empty() {
        return Err(Fault::Row(format!("{started} of {} attempts could be written", due.len())));
    }
    Ok(Made { ids, tombstones })
}
