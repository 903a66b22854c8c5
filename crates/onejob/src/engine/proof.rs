//! Who has proved itself: what may follow a failure, and what in production says that a proof holds no more.
//!
//! Certificates are read from the store at the moment of a failure; the transaction that starts an attempt
//! elsewhere looks again (R9). What is remembered here starts nothing: an answer that wins is compared with
//! its provider's certificate, and jobs that wait for other nodes are left in line, and both must cost no read.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onejob_core::{
    AttemptId, CertificateId, Event, Follow, Job, JobId, JobState, Millis, Next, Policy, Seen, Slot, Text, Verdict,
    What, decide,
};
use tracing::{error, info, warn};

use super::reconcile::SWEEP_BATCH;
use super::{Engine, Inner, Stage, detached};
use crate::config::{Config, Task};
use crate::contract::drift;
use crate::id;
use crate::provider::CallInput;
use crate::store::{
    Applied, Begun, Certificate, CertificateFilter, Checked, Contracts, JobFilter, Record, Run, StoreError, Suspend,
    Unproved, Verification, WhyUnproved,
};

/// Between two looks at the certificates that other nodes issued or took back: so long an answer elsewhere
/// may go uncompared, or be compared with what is suspended already.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// A job that is planned on a certificate of another contract than ours is left so long to the node that
/// planned it, in milliseconds: while a new configuration is rolled out both are right.
const OTHERS_GRACE_MS: Millis = 2_000;

/// What an answer about the candidates is wanted for: an open circuit lets one probe through in a period, and
/// whoever only looks must not spend it.
#[derive(Clone, Copy)]
pub(super) enum Asks<'a> {
    /// The job goes where it is sent. It has just been at `left`.
    ToGo { left: Option<&'a str> },
    /// What the answer says of circuits sends nobody anywhere that refuses.
    ToLook,
}

/// The contracts that this node is configured with, and the certificates of them that hold.
pub(crate) struct Proofs {
    by_provider: BTreeMap<Text, Arc<Contracts>>,
    remembered: RwLock<HashMap<Text, Arc<[Certificate]>>>,
}

impl Proofs {
    pub(crate) fn of(config: &Config) -> Proofs {
        let mut by_provider: BTreeMap<Text, Contracts> = BTreeMap::new();
        for task in config.tasks.values().filter(|task| task.contract.is_some()) {
            for provider in task.providers.iter().filter_map(|name| config.providers.get(name)) {
                let digest = config.contract_digest(task, provider);
                by_provider.entry(provider.name.clone()).or_default().insert(task.name.clone(), digest);
            }
        }
        let by_provider = by_provider.into_iter().map(|(provider, contracts)| (provider, Arc::new(contracts)));
        Proofs { by_provider: by_provider.collect(), remembered: RwLock::default() }
    }

    /// What a claim at this provider carries.
    pub(crate) fn contracts(&self, provider: &str) -> Arc<Contracts> {
        self.by_provider.get(provider).cloned().unwrap_or_default()
    }

    /// Whether it is of the contract that is configured here.
    fn is_ours(&self, certificate: &Certificate) -> bool {
        let contracts = self.by_provider.get(&certificate.provider);
        contracts.and_then(|known| known.get(&certificate.task)) == Some(&certificate.contract_digest)
    }

    fn remember(&self, task: &Text, certificates: &[Certificate]) {
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        remembered.insert(task.clone(), certificates.into());
    }

    /// The certificates of a task that held when they were read last.
    fn recall(&self, task: &str) -> Option<Arc<[Certificate]>> {
        self.remembered.read().unwrap_or_else(PoisonError::into_inner).get(task).cloned()
    }
}

impl Asks<'_> {
    fn may_probe(self, provider: &str) -> bool {
        match self {
            Asks::ToGo { left } => left != Some(provider),
            Asks::ToLook => false,
        }
    }
}

/// Which way to a provider is taken for granted.
pub(super) fn certificate_of(certificates: &[Certificate], provider: &str) -> Option<CertificateId> {
    certificates.iter().find(|certificate| &*certificate.provider == provider).map(|certificate| certificate.id)
}

/// Whether the job would end by this.
fn gives_up(job: &Job, event: &Event) -> bool {
    decide(job, event).is_ok_and(|change| matches!(change.verdict, Verdict::Replanned(Next::GiveUp(_))))
}

impl Inner {
    /// The certificates of a task that hold now and are of the contracts configured here, the newest first.
    pub(super) async fn certificates_of(&self, task: &Task) -> Result<Vec<Certificate>, StoreError> {
        if task.contract.is_none() {
            return Ok(Vec::new());
        }
        let mut valid = match self.store.valid_certificates(task.name.clone(), self.now()).await {
            Ok(valid) => valid,
            Err(StoreError::Refused(why)) => {
                error!(task = %task.name, why, "the certificates of a task cannot be read: none holds");
                Vec::new()
            }
            Err(away) => return Err(away),
        };
        valid.retain(|certificate| self.proofs.is_ours(certificate));
        self.proofs.remember(&task.name, &valid);
        Ok(valid)
    }

    /// What the job's task allows now, as it is configured, proved, and lately answered.
    pub(super) async fn policy(&self, record: &Record, asks: Asks<'_>) -> Result<Policy, StoreError> {
        let pinned = record.intent.as_ref().and_then(|intent| intent.provider.as_deref());
        let Some(task) = self.task_of(record) else { return Ok(Policy::nothing_more()) };
        let mut policy = task.policy(pinned);
        // One place to go needs no proof, and there is no choice to make.
        if policy.candidates.len() < 2 {
            return Ok(policy);
        }
        let certificates = self.certificates_of(task).await?;
        self.prefer(&mut policy, &certificates, asks);
        Ok(policy)
    }

    /// What the task allows a new job. Its certificates are read only where its first provider refuses
    /// everything now; if they cannot be, it goes there all the same.
    pub(super) async fn opening_policy(
        &self,
        task: &Task,
        pinned: Option<&str>,
        at: Millis,
        run_at: Option<Millis>,
    ) -> Policy {
        let mut policy = task.policy(pinned);
        let starts_now = run_at.is_none_or(|run_at| run_at <= at);
        let first = policy.candidates.first().filter(|_| starts_now && policy.candidates.len() > 1);
        let lane = first.and_then(|first| self.lanes.get(&first.provider));
        if !lane.is_some_and(|lane| lane.circuit.is_open()) {
            return policy;
        }
        match self.certificates_of(task).await {
            Ok(certificates) => self.prefer(&mut policy, &certificates, Asks::ToGo { left: None }),
            Err(error) => {
                self.metrics.store_errors.inc();
                warn!(task = %task.name, %error, "could not read the certificates of a task whose first provider refuses");
            }
        }
        policy
    }

    /// Fills in who is proved and who refuses everything.
    pub(super) fn prefer(&self, policy: &mut Policy, certificates: &[Certificate], asks: Asks<'_>) {
        for candidate in policy.candidates.iter_mut().skip(1) {
            candidate.certificate = certificate_of(certificates, &candidate.provider);
        }
        let proved = policy.candidates.iter().any(|candidate| candidate.certificate.is_some());
        // With nowhere else to go there is nothing to prefer, and no probe to spend.
        let mut found = !proved;
        for (place, candidate) in policy.candidates.iter_mut().enumerate() {
            let allowed = place == 0 || candidate.certificate.is_some();
            let Some(lane) = self.lanes.get(&candidate.provider).filter(|_| allowed) else { continue };
            // A probe is for whoever would go there: not behind one that does not refuse, nor at once after
            // this very job was refused there.
            let may_probe = !found && asks.may_probe(&candidate.provider);
            candidate.refuses = if may_probe { lane.circuit.diverts() } else { lane.circuit.is_open() };
            found |= !candidate.refuses;
        }
    }

    /// What the job's task allows to follow the end of an attempt at `left`.
    pub(super) async fn follow(&self, record: &Record, left: Option<&str>) -> Result<Follow, StoreError> {
        let policy = Arc::new(self.policy(record, Asks::ToGo { left }).await?);
        Ok(Follow { policy, jitter: fastrand::u16(0..=1000) })
    }

    /// What may follow by the certificates that were read last, if they were.
    fn remembered(&self, record: &Record) -> Option<Follow> {
        let pinned = record.intent.as_ref().and_then(|intent| intent.provider.as_deref());
        let task = self.task_of(record)?;
        let (recalled, now) = (self.proofs.recall(&task.name)?, self.now());
        let holding: Vec<Certificate> = recalled.iter().filter(|c| c.holds(now)).cloned().collect();
        let mut policy = task.policy(pinned);
        self.prefer(&mut policy, &holding, Asks::ToLook);
        Some(Follow { policy: Arc::new(policy), jitter: 0 })
    }

    /// Plans a job anew whose certificate does not hold. One that holds for a node of another configuration is
    /// left to that node for a while, and after that as long as this one could only end the job. Gives when to look again, if it is left to others.
    pub(super) async fn replan(&self, unproved: &Unproved) -> Result<Option<Millis>, StoreError> {
        let record = &unproved.record;
        let Slot::Open { plan: Some(plan) } = &record.job.slot else { return Ok(None) };
        let (now, grace) = (self.now(), plan.due_at.saturating_add(OTHERS_GRACE_MS));
        let holds_elsewhere = unproved.because == WhyUnproved::OtherContract && !self.member.is_alone();
        if holds_elsewhere && now < grace {
            return Ok(Some(grace));
        }
        // It never ends here what may start there. What is remembered is asked first: of a long line that is
        // left to others, every look would cost a read for each job.
        let event = |follow| Event { at: now, what: What::Unproved { certificate: plan.certificate, follow } };
        let leave = |event: &Event| holds_elsewhere && gives_up(&record.job, event);
        let later = now.saturating_add(OTHERS_GRACE_MS);
        if self.remembered(record).is_some_and(|follow| leave(&event(follow))) {
            return Ok(Some(later));
        }
        let event = event(self.follow(record, None).await?);
        if leave(&event) {
            return Ok(Some(later));
        }
        let applied = self.store.apply(record.job.id, event).await?;
        if let Applied::Done { record, .. } = &applied {
            let (job, state) = (id::job_text(record.job.id), record.job.state().as_str());
            warn!(%job, owner = %record.owner, provider = %plan.provider, state, "the certificate that a job was queued on does not hold: planned anew");
        }
        self.observe(&applied);
        Ok(None)
    }

    /// Plans anew what is queued for a provider that is not configured any more and was to take over there.
    /// Only where no other node may be configured with it.
    pub(super) async fn replan_all_at(&self, provider: &str) -> Result<(), StoreError> {
        let mut filter = JobFilter { state: Some(JobState::Queued), limit: SWEEP_BATCH, ..JobFilter::default() };
        loop {
            let page = self.store.list_jobs(filter.clone()).await?;
            for record in &page {
                let Slot::Open { plan: Some(plan) } = &record.job.slot else { continue };
                if &*plan.provider == provider && plan.provider != plan.primary {
                    let because = WhyUnproved::DoesNotHold;
                    self.replan(&Unproved { record: record.clone(), because }).await?;
                }
            }
            match page.last() {
                Some(last) if page.len() == SWEEP_BATCH => filter.before = Some(last.job.id),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// What of a whole, acceptable answer says that its provider is not any more what it proved to be.
    pub(super) fn drift(
        &self,
        task: &Task,
        provider: &str,
        call: impl FnOnce() -> CallInput,
        seen: &Seen,
    ) -> Option<String> {
        let recalled = self.proofs.recall(&task.name)?;
        let now = self.now();
        let certificate = recalled.iter().find(|c| &*c.provider == provider && c.holds(now))?;
        drift(certificate, self.config.providers.get(provider)?, &call(), seen)
    }

    /// Takes back what a provider has proved for a task, if it has: its answer in this attempt says so.
    pub(super) async fn take_back(
        &self,
        task: &Task,
        provider: &str,
        because: &str,
        about: (JobId, AttemptId),
    ) -> Result<(), StoreError> {
        let held = self.certificates_of(task).await?;
        let Some(certificate) = certificate_of(&held, provider) else { return Ok(()) };
        self.suspend(certificate, because.into(), Some(about)).await?;
        self.certificates_of(task).await?;
        Ok(())
    }

    async fn suspend(
        &self,
        certificate: CertificateId,
        because: Text,
        about: Option<(JobId, AttemptId)>,
    ) -> Result<bool, StoreError> {
        let suspend = Suspend { certificate, because: because.clone(), about, at: self.now() };
        let suspended = match self.store.suspend(suspend).await {
            Err(StoreError::Refused(why)) => {
                error!(why, "the store refused to suspend a certificate: a fault of ours");
                false
            }
            answer => answer?,
        };
        if suspended {
            self.metrics.suspended.inc();
            let job = about.map(|(job, _)| id::job_text(job));
            let certificate = id::certificate_text(certificate);
            warn!(certificate, job, %because, "a certificate is suspended: nothing fails over to that provider for that task");
        }
        Ok(suspended)
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        for task in self.config.tasks.values() {
            self.certificates_of(task).await?;
        }
        Ok(())
    }
}

/// Follows what other nodes issue and take back. Runs until the engine drains.
pub(crate) async fn keep_fresh(inner: Arc<Inner>) {
    if inner.proofs.by_provider.is_empty() {
        return;
    }
    let mut stage = inner.stage.subscribe();
    loop {
        if let Err(error) = inner.refresh().await {
            inner.metrics.store_errors.inc();
            warn!(%error, "could not read the certificates");
        }
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            () = tokio::time::sleep(REFRESH_EVERY) => {}
        }
    }
}

impl Engine {
    /// Certificates, the newest first, those that ended among them.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn certificates(&self, filter: CertificateFilter) -> Result<Vec<Certificate>, StoreError> {
        self.inner.store.certificates(filter).await
    }

    /// What is known of every contract at every provider.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn verifications(&self) -> Result<Vec<Checked>, StoreError> {
        self.inner.store.verifications().await
    }

    /// Takes the lease of a contract at a provider for a run, or keeps it for `lease` from now.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn begin_verification(&self, run: Run, lease: Duration) -> Result<Begun, StoreError> {
        let now = self.inner.now();
        let until = now.saturating_add(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX));
        self.inner.store.begin_verification(run, now, until).await
    }

    /// Ends a run; see [`crate::store::Store::end_verification`]. What it decided holds on this node from now
    /// on, and on others within seconds.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn end_verification(
        &self,
        run: Run,
        verification: Verification,
        certificate: Option<Certificate>,
    ) -> Result<bool, StoreError> {
        let inner = self.inner.clone();
        detached(async move {
            let (task, provider, passed) = (run.task.clone(), run.provider.clone(), verification.passed);
            let ended = inner.store.end_verification(run, verification, certificate).await?;
            info!(%task, %provider, passed, ended, "a contract was verified");
            if let Some(task) = inner.config.tasks.get(&task)
                && let Err(error) = inner.certificates_of(task).await
            {
                // The run stands; what is remembered is read again soon.
                warn!(%error, "could not read the certificates");
            }
            Ok(ended)
        })
        .await
    }

    /// Gives the lease of a run back that came to no end.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn leave_verification(&self, run: Run) -> Result<(), StoreError> {
        self.inner.store.leave_verification(run).await
    }

    /// Takes a certificate back by a person's word. False if it did not hold any more.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn suspend(&self, certificate: CertificateId, because: Text) -> Result<bool, StoreError> {
        let inner = self.inner.clone();
        detached(async move {
            let suspended = inner.suspend(certificate, because, None).await?;
            inner.refresh().await?;
            Ok(suspended)
        })
        .await
    }
}
