//! Stored row ↔ core types. What a row says is believed only if some sequence of events can mean it:
//! a damaged one is refused by name and never acted upon.

use onejob_core::{
    Attempt, AttemptId, AttemptState, AttemptStateName, Cause, CertificateId, Effects, Failover, Failure, FailureClass,
    GiveUpClass, GivenUp, Job, JobId, JobState, Millis, NodeId, Plan, Resolution, ResolvedBy, Seen, Slot, Text, Usage,
};

use super::Record;
use crate::id::job_text;
use crate::intent::{Fingerprint, Intent};

/// A row of `jobs`.
pub(super) struct JobRow {
    pub(super) id: u128,
    pub(super) owner: Text,
    pub(super) idempotency_key: Text,
    pub(super) task: Option<Text>,
    pub(super) provider: Option<Text>,
    pub(super) fingerprint_version: Option<i64>,
    pub(super) fingerprint: Option<[u8; 32]>,
    pub(super) effects: Effects,
    pub(super) priority: i64,
    pub(super) run_at: Option<Millis>,
    pub(super) deadline: Option<Millis>,
    pub(super) state: JobState,
    pub(super) version: i64,
    pub(super) tries_from: i64,
    pub(super) next_provider: Option<Text>,
    pub(super) next_primary: Option<Text>,
    pub(super) next_certificate: Option<u128>,
    pub(super) due_at: Option<Millis>,
    pub(super) completed_by: Option<u128>,
    pub(super) error_class: Option<GiveUpClass>,
    pub(super) error_status: Option<i64>,
    pub(super) error_message: Option<Text>,
    pub(super) error_failover: Option<Failover>,
    pub(super) duplicates: i64,
    pub(super) created_at: Millis,
    pub(super) updated_at: Millis,
    pub(super) metadata: Text,
    pub(super) input: Option<Text>,
    pub(super) result: Option<Text>,
}

/// A row of `attempts`, without what it repeats of its job.
pub(super) struct AttemptRow {
    pub(super) id: u128,
    pub(super) number: i64,
    pub(super) provider: Text,
    pub(super) primary_provider: Text,
    pub(super) by_hand: bool,
    pub(super) certificate_id: Option<u128>,
    pub(super) node: u128,
    pub(super) version_read: i64,
    pub(super) started_at: Millis,
    pub(super) state: AttemptStateName,
    pub(super) handle: Option<Text>,
    pub(super) model: Option<Text>,
    pub(super) input_tokens: Option<i64>,
    pub(super) output_tokens: Option<i64>,
    pub(super) cause: Option<Cause>,
    pub(super) unknown_since: Option<Millis>,
    pub(super) finished_at: Option<Millis>,
    pub(super) failure_class: Option<FailureClass>,
    pub(super) failure_status: Option<i64>,
    pub(super) failure_message: Option<Text>,
    pub(super) superseded_by: Option<u128>,
    pub(super) never_sent: Option<bool>,
    pub(super) resolved_by: Option<ResolvedBy>,
    pub(super) resolved_at: Option<Millis>,
    pub(super) resolved_reason: Option<Text>,
}

/// Why a row means nothing; a sentence without any of the row's data.
pub(super) type Unsound = String;

impl JobRow {
    /// The row for a record.
    pub(super) fn of(record: &Record) -> JobRow {
        let job = &record.job;
        let intent = record.intent.as_ref();
        let plan = plan_of(&job.slot);
        let given_up = given_up_of(&job.slot);
        let filled = filled_of(&job.slot);
        JobRow {
            id: job.id.0,
            owner: record.owner.clone(),
            idempotency_key: record.idempotency_key.clone(),
            task: intent.map(|i| i.task.clone()),
            provider: intent.and_then(|i| i.provider.clone()),
            fingerprint_version: intent.map(|i| i64::from(i.fingerprint.version)),
            fingerprint: intent.map(|i| i.fingerprint.digest),
            effects: job.effects,
            priority: i64::from(record.priority),
            run_at: record.run_at,
            deadline: job.deadline,
            state: job.state(),
            version: i64::from(job.version),
            tries_from: i64::from(job.tries_from),
            next_provider: plan.map(|p| p.provider.clone()),
            next_primary: plan.map(|p| p.primary.clone()),
            next_certificate: plan.and_then(|p| p.certificate).map(|c| c.0),
            due_at: plan.map(|p| p.due_at),
            completed_by: filled.map(|(by, _)| by.0),
            error_class: given_up.map(|g| g.class),
            error_status: given_up.and_then(|g| g.status).map(i64::from),
            error_message: given_up.map(|g| g.message.clone()),
            error_failover: given_up.map(|g| g.failover),
            duplicates: stored_count(record.duplicates),
            created_at: record.created_at,
            updated_at: record.updated_at,
            metadata: record.metadata.clone(),
            input: intent.map(|i| i.input.clone()),
            result: filled.map(|(_, result)| result.clone()),
        }
    }

    /// The record that the row and its attempts, in the order of their numbers, stand for.
    ///
    /// # Errors
    ///
    /// A sentence that names the job, if they stand for none.
    pub(super) fn record(self, attempts: Vec<Attempt>) -> Result<Record, Unsound> {
        let id = JobId(self.id);
        self.believed(attempts).map_err(|why| format!("the stored {} means nothing: {why}", job_text(id)))
    }

    fn believed(self, attempts: Vec<Attempt>) -> Result<Record, Unsound> {
        let stored_state = self.state;
        let slot = self.slot()?;
        let intent = match (self.task, self.input, self.fingerprint, self.fingerprint_version) {
            (Some(task), Some(input), Some(digest), Some(version)) => Some(Intent {
                task,
                input,
                provider: self.provider,
                fingerprint: Fingerprint { version: narrow(version, "fingerprint_version")?, digest },
            }),
            (None, None, None, None) => None,
            _ => return Err("a part of its intent is missing".into()),
        };
        let job = Job {
            id: JobId(self.id),
            effects: self.effects,
            version: narrow(self.version, "version")?,
            slot,
            deadline: self.deadline,
            tries_from: narrow(self.tries_from, "tries_from")?,
            attempts,
        };
        if let Some(why) = job.unsound() {
            return Err(why.into());
        }
        if job.state() != stored_state {
            return Err("its state is not the one that follows from its slot and its attempts".into());
        }
        Ok(Record {
            job,
            owner: self.owner,
            idempotency_key: self.idempotency_key,
            intent,
            metadata: self.metadata,
            priority: narrow(self.priority, "priority")?,
            run_at: self.run_at,
            duplicates: narrow(self.duplicates, "duplicates")?,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }

    fn slot(&self) -> Result<Slot, Unsound> {
        match self.state {
            JobState::Queued => {
                let certificate = self.next_certificate.map(CertificateId);
                Ok(Slot::Open {
                    plan: Some(Plan {
                        provider: needed(self.next_provider.clone(), "next_provider")?,
                        primary: needed(self.next_primary.clone(), "next_primary")?,
                        certificate,
                        due_at: needed(self.due_at, "due_at")?,
                    }),
                })
            }
            JobState::Running | JobState::Unknown => Ok(Slot::Open { plan: None }),
            JobState::Succeeded => Ok(Slot::Filled {
                by: AttemptId(needed(self.completed_by, "completed_by")?),
                result: needed(self.result.clone(), "result")?,
            }),
            JobState::Failed => Ok(Slot::GivenUp(GivenUp {
                class: needed(self.error_class, "error_class")?,
                status: self.error_status.map(|status| narrow(status, "error_status")).transpose()?,
                message: needed(self.error_message.clone(), "error_message")?,
                failover: needed(self.error_failover, "error_failover")?,
            })),
            JobState::Cancelled => Ok(Slot::Cancelled),
        }
    }
}

impl AttemptRow {
    /// The row for an attempt.
    pub(super) fn of(attempt: &Attempt) -> AttemptRow {
        let mut row = AttemptRow {
            id: attempt.id.0,
            number: i64::from(attempt.number),
            provider: attempt.provider.clone(),
            primary_provider: attempt.primary.clone(),
            by_hand: attempt.by_hand,
            certificate_id: attempt.certificate.map(|c| c.0),
            node: attempt.node.0,
            version_read: i64::from(attempt.version_read),
            started_at: attempt.started_at,
            state: attempt.state.name(),
            handle: attempt.handle.clone(),
            model: attempt.seen.model.clone(),
            input_tokens: attempt.seen.usage.and_then(|u| u.input_tokens).map(stored_count),
            output_tokens: attempt.seen.usage.and_then(|u| u.output_tokens).map(stored_count),
            cause: None,
            unknown_since: None,
            finished_at: attempt.state.finished_at(),
            failure_class: None,
            failure_status: None,
            failure_message: None,
            superseded_by: None,
            never_sent: None,
            resolved_by: None,
            resolved_at: None,
            resolved_reason: None,
        };
        if let Some(resolution) = attempt.state.resolution() {
            row.resolved_by = Some(resolution.by);
            row.resolved_at = Some(resolution.at);
            row.resolved_reason = resolution.reason.clone();
        }
        match &attempt.state {
            AttemptState::Starting | AttemptState::Running => {}
            AttemptState::Succeeded { .. } | AttemptState::Abandoned { .. } => {}
            AttemptState::Unknown { cause, since } => {
                row.cause = Some(*cause);
                row.unknown_since = Some(*since);
            }
            AttemptState::Failed { failure, .. } => {
                row.failure_class = Some(failure.class);
                row.failure_status = failure.status.map(i64::from);
                row.failure_message = Some(failure.message.clone());
            }
            AttemptState::Superseded { by, .. } => row.superseded_by = by.map(|by| by.0),
            AttemptState::Cancelled { never_sent, .. } => row.never_sent = Some(*never_sent),
        }
        row
    }

    /// The attempt that the row stands for.
    ///
    /// # Errors
    ///
    /// A sentence, if it stands for none.
    pub(super) fn attempt(self) -> Result<Attempt, Unsound> {
        let state = self.attempt_state()?;
        let usage = match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => Some(Usage {
                input_tokens: input.map(|n| narrow(n, "input_tokens")).transpose()?,
                output_tokens: output.map(|n| narrow(n, "output_tokens")).transpose()?,
            }),
        };
        Ok(Attempt {
            id: AttemptId(self.id),
            number: narrow(self.number, "number")?,
            provider: self.provider,
            primary: self.primary_provider,
            by_hand: self.by_hand,
            certificate: self.certificate_id.map(CertificateId),
            node: NodeId(self.node),
            version_read: narrow(self.version_read, "version_read")?,
            started_at: self.started_at,
            handle: self.handle,
            seen: Seen { model: self.model, usage },
            state,
        })
    }

    fn attempt_state(&self) -> Result<AttemptState, Unsound> {
        let at = || needed(self.finished_at, "finished_at");
        let resolution = self.resolution()?;
        Ok(match self.state {
            AttemptStateName::Starting => AttemptState::Starting,
            AttemptStateName::Running => AttemptState::Running,
            AttemptStateName::Unknown => AttemptState::Unknown {
                cause: needed(self.cause, "cause")?,
                since: needed(self.unknown_since, "unknown_since")?,
            },
            AttemptStateName::Succeeded => AttemptState::Succeeded { at: at()?, resolution },
            AttemptStateName::Failed => {
                let failure = Failure {
                    class: needed(self.failure_class, "failure_class")?,
                    status: self.failure_status.map(|status| narrow(status, "failure_status")).transpose()?,
                    message: needed(self.failure_message.clone(), "failure_message")?,
                    retry_after_ms: None,
                };
                AttemptState::Failed { at: at()?, failure, resolution }
            }
            AttemptStateName::Superseded => {
                AttemptState::Superseded { at: at()?, by: self.superseded_by.map(AttemptId), resolution }
            }
            AttemptStateName::Cancelled => {
                let never_sent = needed(self.never_sent, "never_sent")?;
                AttemptState::Cancelled { at: at()?, never_sent, resolution }
            }
            AttemptStateName::Abandoned => {
                AttemptState::Abandoned { at: at()?, resolution: needed(resolution, "resolved_by")? }
            }
        })
    }

    fn resolution(&self) -> Result<Option<Resolution>, Unsound> {
        let Some(by) = self.resolved_by else { return Ok(None) };
        let at = needed(self.resolved_at, "resolved_at")?;
        Ok(Some(Resolution { by, at, reason: self.resolved_reason.clone() }))
    }
}

/// The word for it in the column `error_failover`.
pub(super) fn failover_word(failover: Failover) -> &'static str {
    match failover {
        Failover::NotApplicable => "not_applicable",
        Failover::NoVerifiedProvider => "no_verified_provider",
    }
}

/// The one of that word.
pub(super) fn parse_failover(word: &str) -> Option<Failover> {
    [Failover::NotApplicable, Failover::NoVerifiedProvider].into_iter().find(|f| failover_word(*f) == word)
}

/// The one of that word.
pub(super) fn parse_effects(word: &str) -> Option<Effects> {
    [Effects::Exclusive, Effects::Racing].into_iter().find(|e| e.as_str() == word)
}

fn plan_of(slot: &Slot) -> Option<&Plan> {
    match slot {
        Slot::Open { plan } => plan.as_ref(),
        Slot::Filled { .. } | Slot::GivenUp(_) | Slot::Cancelled => None,
    }
}

fn given_up_of(slot: &Slot) -> Option<&GivenUp> {
    match slot {
        Slot::GivenUp(given_up) => Some(given_up),
        Slot::Open { .. } | Slot::Filled { .. } | Slot::Cancelled => None,
    }
}

fn filled_of(slot: &Slot) -> Option<(AttemptId, &Text)> {
    match slot {
        Slot::Filled { by, result } => Some((*by, result)),
        Slot::Open { .. } | Slot::GivenUp(_) | Slot::Cancelled => None,
    }
}

/// Databases count in 63 bits. What a provider reports beyond that is nonsense, and no reason to
/// lose a result.
fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn narrow<T: TryFrom<i64>>(number: i64, column: &str) -> Result<T, Unsound> {
    T::try_from(number).map_err(|_| format!("{column} is out of range"))
}

fn needed<T>(value: Option<T>, column: &str) -> Result<T, Unsound> {
    value.ok_or_else(|| format!("{column} is missing"))
}
