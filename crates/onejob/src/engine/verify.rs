//! Verification: runs of contracts against providers, by the path that every attempt takes. One run of a
//! pair at a time over all nodes, with few of the lane's slots, and none while jobs wait for one.

mod calls;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onejob_core::{Millis, Text};
use serde_json::Value;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::{Engine, Inner, detached};
use crate::config::{ProviderConfig, ProviderKind, Task};
use crate::contract::report::{Check, Figures, Report, Row, Tally, Verdict};
use crate::contract::verify::Subject;
use crate::contract::{certificate_detail, verify};
use crate::id;
use crate::store::{Begun, Certificate, CertificateFilter, Checked, Run, StoreError, Verification};

use calls::Calls;
pub(crate) use schedule::keep_verified;

/// How long a run holds its pair without renewing: a node that dies keeps others waiting that long.
const LEASE: Duration = Duration::from_secs(30);

/// Between two renewals: two may fail before the lease ends.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// A run that takes longer has come to no end: providers that are that slow hold up whoever waits for it.
const LONGEST_RUN: Duration = Duration::from_secs(30 * 60);

/// One slot in so many of a provider's may be held by a verification.
const SHARE: usize = 4;

/// Of each pair so many certificates are looked at first: the one that counts is nearly always the newest.
const NEWEST: usize = 2;

/// Where none of those is of the contract as it is configured now, at most so many are.
const MOST: usize = 1000;

/// Who asked for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedBy {
    /// A person or a program, through the API.
    Request,
    /// The contract's own `verify_every`.
    Schedule,
}

/// What became of a wish to verify.
#[derive(Clone, PartialEq, Debug)]
pub enum Verified {
    /// It was run.
    Done(Box<Report>, Option<Box<Certificate>>),
    /// Another run of the pair is under way, here or at another node, until then if it does not renew.
    InFlight {
        /// When its lease ends.
        until: Millis,
    },
    /// No such task is configured.
    NoSuchTask,
    /// The task has no such provider.
    NoSuchProvider,
    /// The task has no contract.
    NoContract,
    /// Nothing is ever sent to this provider.
    NotSupported,
    /// This node is stopping.
    Stopping,
}

/// How a contract stands at a provider.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The task.
    pub task: Arc<Task>,
    /// The provider.
    pub provider: Arc<ProviderConfig>,
    /// Its newest certificate for the contract as it is configured now, or else of any.
    pub certificate: Option<Certificate>,
    /// Whether that certificate is of the contract as it is configured now.
    pub is_current: bool,
    /// What the store knows of runs.
    pub checked: Option<Checked>,
    /// How far a run on this node is: calls made, and calls known to be needed.
    pub progress: Option<(u32, u32)>,
}

/// The runs of this node.
#[derive(Default)]
pub(crate) struct Verifying {
    runs: Mutex<HashMap<(Text, Text), Arc<Tally>>>,
    ended: Notify,
}

/// Takes its run off the list when it ends, however it ends.
struct Listed<'a> {
    verifying: &'a Verifying,
    key: (Text, Text),
    tally: Arc<Tally>,
}

impl Verifying {
    /// None if this node runs the pair already.
    fn list(&self, run: &Run) -> Option<Listed<'_>> {
        let (key, tally) = ((run.task.clone(), run.provider.clone()), Arc::<Tally>::default());
        let mut runs = self.lock();
        if runs.contains_key(&key) {
            return None;
        }
        runs.insert(key.clone(), tally.clone());
        Some(Listed { verifying: self, key, tally })
    }

    fn progress(&self, task: &Text, provider: &Text) -> Option<(u32, u32)> {
        self.lock().get(&(task.clone(), provider.clone())).map(|tally| tally.counts())
    }

    /// Returns when no run is left.
    pub(crate) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            if self.lock().is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(Text, Text), Arc<Tally>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.verifying.lock().remove(&self.key);
        self.verifying.ended.notify_waiters();
    }
}

impl Engine {
    /// Runs the contract of a task against one of its providers and records how it ended, even if the
    /// caller goes away meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; safe to try again.
    pub async fn verify(&self, task: &str, provider: &str, by: AskedBy) -> Result<Verified, StoreError> {
        let inner = self.inner.clone();
        let Some(task) = inner.config.tasks.get(task).cloned() else { return Ok(Verified::NoSuchTask) };
        if !task.providers.iter().any(|name| &**name == provider) {
            return Ok(Verified::NoSuchProvider);
        }
        let Some(provider) = inner.config.providers.get(provider).cloned() else {
            return Ok(Verified::NoSuchProvider);
        };
        if task.contract.is_none() {
            return Ok(Verified::NoContract);
        }
        detached(async move { inner.verify(task, provider, by).await }).await
    }

    /// How every contract stands at every provider of its task.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn contracts(&self) -> Result<Vec<Standing>, StoreError> {
        let inner = &self.inner;
        let known = inner.store.verifications().await?;
        let mut all = Vec::new();
        for task in inner.config.tasks.values().filter(|task| task.contract.is_some()) {
            for provider in task.providers.iter().filter_map(|name| inner.config.providers.get(name)) {
                let (certificate, is_current) = inner.certificate_shown(task, provider).await?;
                let of_pair = |checked: &&Checked| checked.task == task.name && checked.provider == provider.name;
                all.push(Standing {
                    task: task.clone(),
                    provider: provider.clone(),
                    is_current,
                    certificate,
                    checked: known.iter().find(of_pair).cloned(),
                    progress: inner.verifying.progress(&task.name, &provider.name),
                });
            }
        }
        Ok(all)
    }

    /// Now, by the clock that decides.
    pub fn now(&self) -> Millis {
        self.inner.now()
    }
}

impl Inner {
    /// The newest certificate of a pair for the contract as it is configured now, or else of any; and whether it
    /// is the former.
    async fn certificate_shown(
        &self,
        task: &Task,
        provider: &ProviderConfig,
    ) -> Result<(Option<Certificate>, bool), StoreError> {
        let digest = self.config.contract_digest(task, provider);
        let mut any = None;
        for limit in [NEWEST, MOST] {
            let (task, provider) = (Some(task.name.clone()), Some(provider.name.clone()));
            let mut certificates = self.store.certificates(CertificateFilter { task, provider, limit }).await?;
            let current = certificates.iter().position(|certificate| certificate.contract_digest == digest);
            if let Some(at) = current {
                return Ok((Some(certificates.swap_remove(at)), true));
            }
            let are_all = certificates.len() < limit;
            any = certificates.into_iter().next();
            if are_all {
                break;
            }
        }
        Ok((any, false))
    }

    async fn verify(
        self: &Arc<Inner>,
        task: Arc<Task>,
        provider: Arc<ProviderConfig>,
        by: AskedBy,
    ) -> Result<Verified, StoreError> {
        let Some(contract) = &task.contract else { return Ok(Verified::NoContract) };
        let Some(lane) = self.lanes.get(&provider.name) else { return Ok(Verified::NoSuchProvider) };
        if matches!(provider.kind, ProviderKind::Worker) {
            return Ok(Verified::NotSupported);
        }
        let run = Run { id: id::new_verification_id(), task: task.name.clone(), provider: provider.name.clone() };
        let Some(listed) = self.verifying.list(&run) else {
            return Ok(Verified::InFlight { until: self.now() + LEASE.as_millis() as Millis });
        };
        // Listed first and asked after: either the stop is seen here, or the stop sees the run.
        if self.draining() {
            return Ok(Verified::Stopping);
        }
        let began = self.now();
        if let Begun::Elsewhere { until } = self.begin(&run).await? {
            return Ok(Verified::InFlight { until });
        }
        info!(task = %task.name, provider = %provider.name, "verification began");
        let subject = Subject { task: &task, contract, provider: &provider };
        let caller = Calls { inner: self.clone(), lane: lane.clone(), task: task.clone() };
        let report = tokio::select! {
            report = verify::verify(subject, &caller, provider.concurrency / SHARE, &listed.tally) => Some(report),
            () = self.lose(&run) => None,
            () = tokio::time::sleep(LONGEST_RUN) => Some(without_end(subject)),
        };
        match report {
            None => {
                self.store.leave_verification(run).await?;
                Ok(if self.draining() { Verified::Stopping } else { Verified::InFlight { until: self.now() } })
            }
            Some(report) => self.end(subject, run, began, report, by).await,
        }
    }

    async fn begin(&self, run: &Run) -> Result<Begun, StoreError> {
        let at = self.now();
        self.store.begin_verification(run.clone(), at, at + LEASE.as_millis() as Millis).await
    }

    /// Renews the lease; returns when it is lost.
    async fn lose(&self, run: &Run) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match self.begin(run).await {
                Ok(Begun::Yes) => {}
                Ok(Begun::Elsewhere { .. }) => return,
                // The end says it again, and is refused if the lease was lost meanwhile.
                Err(error) => {
                    warn!(%error, task = %run.task, provider = %run.provider, "a verification could not renew its lease")
                }
            }
        }
    }

    async fn end(
        self: &Arc<Inner>,
        subject: Subject<'_>,
        run: Run,
        began: Millis,
        report: Report,
        by: AskedBy,
    ) -> Result<Verified, StoreError> {
        let verdict = report.verdict();
        let (task, provider) = (subject.task, subject.provider);
        info!(task = %task.name, provider = %provider.name, ?verdict, calls = report.figures.calls, "verification ended");
        let passed = match verdict {
            Verdict::Passed => true,
            Verdict::Failed => false,
            // It says nothing, so what was known stays.
            Verdict::Undecided => {
                let why = report.rows.iter().find(|row| row.undecided > 0).and_then(|row| row.detail.as_deref());
                warn!(task = %task.name, provider = %provider.name, why, "a verification could not be told");
                self.store.leave_verification(run).await?;
                return Ok(Verified::Done(Box::new(report), None));
            }
        };
        let ended = self.now();
        let contract_digest = self.config.contract_digest(task, provider);
        let certificate = passed.then(|| Certificate {
            id: id::new_certificate_id(),
            task: task.name.clone(),
            provider: provider.name.clone(),
            contract_digest,
            model: report.model.clone(),
            detail: certificate_detail(subject, &report, by.as_str()).to_string().into(),
            issued_at: ended,
            valid_until: ended + millis(subject.contract.valid_for),
            suspended: None,
        });
        let verification = Verification {
            contract_digest,
            started_at: began,
            ended_at: ended,
            passed,
            report: Value::from(report.to_json()).to_string().into(),
            certificate: certificate.as_ref().map(|certificate| certificate.id),
        };
        let engine = Engine { inner: self.clone() };
        match engine.end_verification(run, verification, certificate.clone()).await? {
            true => Ok(Verified::Done(Box::new(report), certificate.map(Box::new))),
            // Its lease had run out, and another run has the word.
            false => Ok(Verified::InFlight { until: ended }),
        }
    }
}

/// Of a run that was given up.
fn without_end(subject: Subject<'_>) -> Report {
    let mut row = Row::of(Check::RoundTrip);
    row.leave_open(format!("the verification came to no end within {} minutes", LONGEST_RUN.as_secs() / 60));
    Report {
        task: subject.task.name.clone(),
        provider: subject.provider.name.clone(),
        rows: vec![row],
        notes: Vec::new(),
        model: None,
        figures: Figures::default(),
    }
}

impl AskedBy {
    /// The word for it, in certificates.
    pub fn as_str(self) -> &'static str {
        match self {
            AskedBy::Request => "request",
            AskedBy::Schedule => "schedule",
        }
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}
