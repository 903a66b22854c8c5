//! Certificates: who has proved that it honours a task's contract, and the runs that decide upon it.
//!
//! A certificate never changes, but for being suspended, once and for ever. The start of an attempt at
//! another provider than the first looks at the certificate that it stands on inside the transaction that
//! writes it (R9): what was read before may have been suspended since.

use std::collections::BTreeMap;
use std::sync::Arc;

use onejob_core::{AttemptId, CertificateId, Digest, JobId, Millis, Slot, Start, Text};
use serde_json::json;

use super::{Record, Result, Store, StoredNotice};
use crate::id::certificate_text;

/// A pass of a task's contract at a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Its name; later ones sort after earlier ones.
    pub id: CertificateId,
    /// For this task and no other.
    pub task: Text,
    /// Of this provider.
    pub provider: Text,
    /// Of task and provider together, as they were configured: with another one it says nothing.
    pub contract_digest: Digest,
    /// The model that answered, as the provider reported it; absent if it reports none.
    pub model: Option<Text>,
    /// More of it, a JSON object: digests, parameters, figures. The store does not look inside.
    pub detail: Text,
    /// Since when.
    pub issued_at: Millis,
    /// Until when; not at that moment any more.
    pub valid_until: Millis,
    /// Whether it was taken back.
    pub suspended: Option<Suspension>,
}

/// Why a certificate does not hold any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspension {
    /// Since when.
    pub at: Millis,
    /// A sentence for people. Never an answer of the provider.
    pub because: Text,
}

/// Names one run of a contract at a provider.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VerificationId(pub u128);

/// One run of a contract at a provider. Of a pair there is one at a time over all nodes: whoever runs it
/// holds a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Which run.
    pub id: VerificationId,
    /// Of this task's contract.
    pub task: Text,
    /// At this provider.
    pub provider: Text,
}

/// Whether a run may begin, or go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// It holds the lease.
    Yes,
    /// Another run does.
    Elsewhere {
        /// Until this moment, if it does not renew.
        until: Millis,
    },
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verification {
    /// Of task and provider as they were configured.
    pub contract_digest: Digest,
    /// When it began.
    pub started_at: Millis,
    /// When it ended.
    pub ended_at: Millis,
    /// Whether the provider honours the contract.
    pub passed: bool,
    /// What was checked and what came of it, a JSON object.
    pub report: Text,
    /// The certificate of a pass.
    pub certificate: Option<CertificateId>,
}

/// What is known of a contract at a provider: why there is, or is not, a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The task.
    pub task: Text,
    /// The provider.
    pub provider: Text,
    /// The run that holds, or held, the lease. Past `until` it is dead or about to be taken over.
    pub running: Option<Running>,
    /// The last run that ended.
    pub last: Option<Verification>,
}

/// A run that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// Which.
    pub run: VerificationId,
    /// When it began.
    pub since: Millis,
    /// Until when it holds the lease if it does not renew.
    pub until: Millis,
}

/// A wish to take a certificate back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspend {
    /// Which.
    pub certificate: CertificateId,
    /// Why, a sentence for people.
    pub because: Text,
    /// Whose answer showed it: gets a notice in that job.
    pub about: Option<(JobId, AttemptId)>,
    /// Now.
    pub at: Millis,
}

/// Which certificates to list, the newest first.
#[derive(Clone, Debug, Default)]
pub struct CertificateFilter {
    /// Of this task.
    pub task: Option<Text>,
    /// Of this provider.
    pub provider: Option<Text>,
    /// At most so many.
    pub limit: usize,
}

/// A queued job that is due and may not start where its plan says (R9).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unproved {
    /// The job as it is.
    pub record: Arc<Record>,
    /// What is wrong with the certificate that its plan stands on.
    pub because: WhyUnproved,
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyUnproved {
    /// It was suspended, has ended, is gone, or never was one of this task and this provider.
    DoesNotHold,
    /// It holds, but of another contract than the claiming node's: a node that is configured as the one
    /// that planned it may still take the job.
    OtherContract,
}

/// The digests of contracts at one provider, by task, as a node is configured.
pub type Contracts = BTreeMap<Text, Digest>;

impl Certificate {
    /// Whether it holds at a moment: neither suspended nor ended.
    pub fn holds(&self, at: Millis) -> bool {
        self.suspended.is_none() && at < self.valid_until
    }

    /// When it ceased, or will cease, to hold.
    pub(super) fn ends_at(&self) -> Millis {
        self.suspended.as_ref().map_or(self.valid_until, |suspended| suspended.at.min(self.valid_until))
    }

    /// What is noted in the job whose answer made it suspended.
    pub(super) fn suspended_notice(&self, suspend: &Suspend) -> Option<StoredNotice> {
        let (job, attempt) = suspend.about?;
        let detail = json!({
            "certificate": certificate_text(suspend.certificate),
            "task": &*self.task,
            "provider": &*self.provider,
            "because": &*suspend.because,
        });
        let kind = "certificate_suspended".into();
        Some(StoredNotice { at: suspend.at, job, attempt: Some(attempt), kind, detail: detail.to_string().into() })
    }
}

impl Unproved {
    /// A job whose planned start lost its certificate; `found` is what the plan names, as it is now.
    pub(super) fn of(record: Arc<Record>, found: Option<&Certificate>, at: Millis) -> Unproved {
        let task = record.intent.as_ref().map(|intent| &intent.task);
        let Slot::Open { plan: Some(plan) } = &record.job.slot else {
            return Unproved { record, because: WhyUnproved::DoesNotHold };
        };
        let holds =
            found.is_some_and(|found| found.holds(at) && Some(&found.task) == task && found.provider == plan.provider);
        let because = if holds { WhyUnproved::OtherContract } else { WhyUnproved::DoesNotHold };
        Unproved { record, because }
    }
}

/// The certificate that the plan of a queued job names.
pub(super) fn planned_on(record: &Record) -> Option<CertificateId> {
    match &record.job.slot {
        Slot::Open { plan } => plan.as_ref()?.certificate,
        Slot::Filled { .. } | Slot::GivenUp(_) | Slot::Cancelled => None,
    }
}

impl CertificateFilter {
    /// Whether it keeps a certificate.
    pub(super) fn keeps(&self, certificate: &Certificate) -> bool {
        self.task.as_ref().is_none_or(|task| certificate.task == *task)
            && self.provider.as_ref().is_none_or(|provider| certificate.provider == *provider)
    }
}

/// The certificate that must be looked at before this start is decided upon.
pub(super) fn stands_on(start: &Start) -> Option<CertificateId> {
    start.certificate.filter(|_| start.provider != start.primary)
}

/// The start as it may be decided upon: without its certificate if that does not hold. `found` is what the
/// certificate is in the transaction that will write the attempt; `contracts`, where they are given, are
/// what the node that starts it is configured with.
pub(super) fn standing(
    start: Start,
    record: &Record,
    found: Option<&Certificate>,
    contracts: Option<&Contracts>,
    at: Millis,
) -> Start {
    let task = record.intent.as_ref().map(|intent| &intent.task);
    let holds = |certificate: &Certificate| {
        Some(&certificate.task) == task
            && certificate.provider == start.provider
            && certificate.holds(at)
            && contracts.is_none_or(|known| known.get(&certificate.task) == Some(&certificate.contract_digest))
    };
    let certificate = stands_on(&start).filter(|id| found.is_some_and(|found| found.id == *id && holds(found)));
    Start { certificate, ..start }
}

impl Store {
    /// Takes the lease of a contract at a provider for a run, or keeps it: one run at a time over all nodes.
    /// A run that does not renew before `lease_until` may be taken over.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn begin_verification(&self, run: Run, at: Millis, lease_until: Millis) -> Result<Begun> {
        on_each!(self, store => store.begin_verification(run, at, lease_until).await)
    }

    /// Ends a run: writes how it ended, issues the certificate of a pass, or suspends after a failure
    /// whatever certificates the pair had, and gives the lease back. False if the run had lost its lease:
    /// then nothing is written, for another one has had, or will have, the word. Safe to repeat.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn end_verification(
        &self,
        run: Run,
        verification: Verification,
        certificate: Option<Certificate>,
    ) -> Result<bool> {
        on_each!(self, store => store.end_verification(run, verification, certificate).await)
    }

    /// Gives the lease of a run back that came to no end. What was known before stays.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn leave_verification(&self, run: Run) -> Result<()> {
        on_each!(self, store => store.leave_verification(run).await)
    }

    /// What is known of every contract at every provider, by task and provider.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn verifications(&self) -> Result<Vec<Checked>> {
        on_each!(self, store => store.verifications().await)
    }

    /// Certificates, the newest first, those that ended among them.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn certificates(&self, filter: CertificateFilter) -> Result<Vec<Certificate>> {
        on_each!(self, store => store.certificates(filter).await)
    }

    /// The certificates of a task that hold at a moment, the newest of each provider and contract; the
    /// newest first. Whoever asks keeps those whose digest is the one that it is configured with.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn valid_certificates(&self, task: Text, at: Millis) -> Result<Vec<Certificate>> {
        on_each!(self, store => store.valid_certificates(task, at).await)
    }

    /// Takes a certificate back for ever, and those that were issued before it for the same contract, with a
    /// notice in the same transaction. False if nothing of this held any more.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn suspend(&self, suspend: Suspend) -> Result<bool> {
        on_each!(self, store => store.suspend(suspend).await)
    }

    /// Takes away certificates that ceased to hold before a moment, at most `limit`; says how many.
    ///
    /// # Errors
    ///
    /// [`super::StoreError`].
    pub async fn prune_certificates(&self, ended_before: Millis, limit: usize) -> Result<usize> {
        on_each!(self, store => store.prune_certificates(ended_before, limit).await)
    }
}

/// Why the certificates of a pair were suspended by a run that failed.
pub(super) const VERIFICATION_FAILED: &str = "verification failed";
