//! Queued jobs that are due: found, decided upon and started in one transaction. What another node is
//! taking at the same moment is passed over.

use std::collections::HashMap;
use std::sync::Arc;

use onejob_core::{AttemptId, Event, Illegal, JobId, Millis, Start, What};

use super::certificates::Held;
use super::columns::{Known, at, bind_ids, id, id_at, read_jobs};
use super::decided::{Decided, decided};
use super::fault::Fault;
use super::lane::{RETRIES, step_aside};
use super::link::{Bound, Call, First, Link, column, value};
use super::options::DueBy;
use super::resolve::resolve;
use super::write::{Planned, write};
use super::{Shared, sql};
use crate::store::record::planned_start;
use crate::store::{Claim, Claimed, MOST_UNPROVED, Record, Result, Unproved};

/// What is due and could not be had is being taken by somebody else. Looking again at once would only
/// be in the way.
const LOOK_AGAIN_MS: i64 = 25;

/// See [`crate::store::Store::claim`].
pub(super) async fn claim(shared: &Shared, claim: &Claim) -> Result<Claimed> {
    shared.counters.commands(1);
    let (mut tries, mut was_away) = (0, false);
    loop {
        let fault = match attempt(shared, claim).await {
            Ok((claimed, written, lost)) => match lost {
                None => return Ok(committed(shared, claimed, written)),
                Some(why) => match resolve(shared, &written).await {
                    Some(true) => return Ok(committed(shared, claimed, written)),
                    Some(false) => Fault::Retry(why),
                    None => Fault::Ambiguous(why),
                },
            },
            Err(fault) => fault,
        };
        match fault {
            Fault::NoLease => return Ok(Claimed::default()),
            Fault::Retry(_) | Fault::Stale(_) if tries < RETRIES => {
                tries += 1;
                step_aside(tries).await;
            }
            Fault::Away(_) | Fault::Held(_) if !was_away => was_away = true,
            Fault::Row(_)
            | Fault::Stale(_)
            | Fault::Retry(_)
            | Fault::Held(_)
            | Fault::Away(_)
            | Fault::Ambiguous(_) => {
                return Err(fault.into());
            }
        }
    }
}

fn committed(shared: &Shared, claimed: Claimed, written: Vec<Planned>) -> Claimed {
    let known =
        written.iter().map(|planned| Known { record: planned.after.clone(), revision: planned.before.revision + 1 });
    shared.remember(known);
    shared.tell(&claimed.records);
    claimed
}

type Tried = (Claimed, Vec<Planned>, Option<String>);

async fn attempt(shared: &Shared, claim: &Claim) -> std::result::Result<Tried, Fault> {
    let mut taking = Taking {
        shared,
        link: shared.work.get().await?,
        claim,
        passed_over: Vec::new(),
        unproved: Vec::new(),
        attempts: 0,
    };
    match taking.run().await {
        Ok((claimed, written)) if written.is_empty() => {
            taking.link.roll_back().await;
            Ok((claimed, written, None))
        }
        Ok((claimed, written)) => match taking.link.commit().await {
            Ok(()) => {
                shared.counters.commit();
                Ok((claimed, written, None))
            }
            Err(Fault::Ambiguous(why)) => Ok((claimed, written, Some(why))),
            Err(fault) => Err(fault),
        },
        Err(fault) => {
            if matches!(fault, Fault::Row(_) | Fault::Stale(_) | Fault::NoLease) {
                taking.link.roll_back().await;
            }
            Err(fault)
        }
    }
}

/// One transaction.
struct Taking<'a> {
    shared: &'a Shared,
    link: Link<'a>,
    claim: &'a Claim,
    /// Due, and the rules do not let them start; they must not hold up those behind them.
    passed_over: Vec<JobId>,
    /// Of these, those whose plan stands on a certificate that does not hold.
    unproved: Vec<Unproved>,
    /// How many of the claim's attempts are used.
    attempts: usize,
}

impl Taking<'_> {
    async fn run(&mut self) -> std::result::Result<(Claimed, Vec<Planned>), Fault> {
        let slots = self.claim.attempts.len();
        let mut first = First::Begin;
        let mut all: Vec<Planned> = Vec::new();
        let (next_due, now) = loop {
            let (found, now, next_due) = self.due(first, slots - self.attempts).await?;
            first = First::GoOn;
            if found.is_empty() || self.unproved.len() >= MOST_UNPROVED {
                break (next_due, now);
            }
            let planned = self.decide(&found, now).await?;
            if !planned.is_empty() {
                let wave: Vec<&Planned> = planned.iter().collect();
                write(&mut self.link, First::GoOn, &wave, self.shared.node()).await?;
            }
            all.extend(planned);
        };
        let records: Vec<Arc<Record>> = all.iter().map(|planned| planned.after.clone()).collect();
        let taken_by_others = records.len() < slots && next_due.is_some_and(|due| due <= now);
        let next_due = if taken_by_others { Some(now + LOOK_AGAIN_MS) } else { next_due };
        Ok((Claimed { records, unproved: std::mem::take(&mut self.unproved), next_due }, all))
    }

    /// Holds up to `slots` jobs that are due; if there are none, says when the next one will be.
    async fn due(
        &mut self,
        first: First,
        slots: usize,
    ) -> std::result::Result<(Vec<JobId>, Millis, Option<Millis>), Fault> {
        let given = match self.shared.options.clock {
            DueBy::Database => None,
            DueBy::Caller => Some(self.claim.at),
        };
        let most = i64::try_from(slots).unwrap_or(i64::MAX);
        let provider = || value(&*self.claim.provider);
        let passed = || column(&self.passed_over, |job| id(job.0));
        let wanted: Bound<'_> = vec![provider(), value(given), passed(), value(most)];
        let calls = [Call::new(&sql::CLAIM, wanted), Call::new(&sql::NEXT_DUE, vec![provider(), passed()])];
        let answers = self.link.run(first, &calls).await?;
        let found = answers[0].iter().map(|row| id_at(row, 0).map(JobId)).collect::<std::result::Result<_, _>>()?;
        let Some(row) = answers[1].first() else { return Err(Fault::Row("next_due.sql gave no row".into())) };
        let now = match given {
            Some(at) => at,
            None => at(row, 1)?,
        };
        Ok((found, now, at(row, 0)?))
    }

    /// Decides upon jobs whose rows are held, in their order.
    async fn decide(&mut self, found: &[JobId], now: Millis) -> std::result::Result<Vec<Planned>, Fault> {
        let read = [Call::new(&sql::JOB_BY_ID, bind_ids(found))];
        let answers = self.link.run(First::GoOn, &read).await?;
        let mut known: HashMap<JobId, std::result::Result<Known, Fault>> = read_jobs(&answers[0])?;
        let held = self.hold(known.values().flatten()).await?;
        let mut planned = Vec::new();
        for job in found {
            let started = match known.remove(job) {
                Some(Ok(known)) => self.start(&known, &held, now),
                Some(Err(Fault::Row(why))) => {
                    tracing::error!(error = %why, "a damaged job is passed over");
                    None
                }
                Some(Err(fault)) => return Err(fault),
                None => None,
            };
            match started {
                Some(start) => {
                    self.attempts += 1;
                    planned.push(start);
                }
                None => self.passed_over.push(*job),
            }
        }
        Ok(planned)
    }

    /// What the jobs' plans stand on, held until they have started.
    async fn hold(&mut self, known: impl Iterator<Item = &Known>) -> std::result::Result<Held, Fault> {
        let starts: Vec<Start> =
            known.filter_map(|known| planned_start(&known.record, AttemptId(0), self.claim.node)).collect();
        Held::of(&mut self.link, First::GoOn, starts.iter()).await
    }

    fn start(&mut self, known: &Known, held: &Held, now: Millis) -> Option<Planned> {
        let attempt = *self.claim.attempts.get(self.attempts)?;
        let start = planned_start(&known.record, attempt, self.claim.node)?;
        let start = held.standing(start, &known.record, Some(&self.claim.contracts), now);
        let event = Event { at: now, what: What::Start(start) };
        match decided(known, &event, self.shared.options.hold.as_ref()) {
            Decided::Write(planned, _) => Some(planned),
            Decided::Refused(Illegal::NotVerified { .. }) => {
                self.unproved.push(held.unproved(known.record.clone(), now));
                None
            }
            Decided::Refused(_) | Decided::Nothing(_) => None,
        }
    }
}
