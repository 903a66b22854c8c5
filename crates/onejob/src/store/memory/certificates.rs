//! Certificates and verifications of the reference store.

use std::sync::Arc;

use onejob_core::{CertificateId, Event, Millis, Start, Text, What};

use super::{MemoryStore, State};
use crate::store::certificates::{Contracts, VERIFICATION_FAILED, planned_on, standing, stands_on};
use crate::store::{
    Begun, Certificate, CertificateFilter, Checked, Record, Result, Run, Running, StoreError, Suspend, Suspension,
    Unproved, Verification,
};

impl MemoryStore {
    /// See [`crate::store::Store::begin_verification`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn begin_verification(&self, run: Run, at: Millis, lease_until: Millis) -> Result<Begun> {
        let mut state = self.writing()?;
        let pair = (run.task.clone(), run.provider.clone());
        let checked = state.checked.entry(pair).or_insert_with(|| Checked {
            task: run.task,
            provider: run.provider,
            running: None,
            last: None,
        });
        let since = match checked.running {
            Some(running) if running.run == run.id => running.since,
            Some(running) if running.until > at => return Ok(Begun::Elsewhere { until: running.until }),
            Some(_) | None => at,
        };
        checked.running = Some(Running { run: run.id, since, until: lease_until });
        Ok(Begun::Yes)
    }

    /// See [`crate::store::Store::end_verification`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn end_verification(
        &self,
        run: Run,
        verification: Verification,
        certificate: Option<Certificate>,
    ) -> Result<bool> {
        let mut state = self.writing()?;
        let pair = (run.task.clone(), run.provider.clone());
        let holds = state.checked.get(&pair).is_some_and(|known| known.running.is_some_and(|r| r.run == run.id));
        if !holds {
            return Ok(state.last_runs.get(&pair) == Some(&run.id));
        }
        if let Some(certificate) = certificate {
            if state.certificates.contains_key(&certificate.id) {
                return Err(StoreError::Refused("a new certificate has the id of another".into()));
            }
            state.certificates.insert(certificate.id, certificate);
        } else if !verification.passed {
            let suspended = Suspension { at: verification.ended_at, because: VERIFICATION_FAILED.into() };
            let of_pair = state.certificates.values_mut().filter(|c| c.task == pair.0 && c.provider == pair.1);
            for certificate in of_pair.filter(|c| c.suspended.is_none()) {
                certificate.suspended = Some(suspended.clone());
            }
        }
        if let Some(checked) = state.checked.get_mut(&pair) {
            (checked.running, checked.last) = (None, Some(verification));
        }
        state.last_runs.insert(pair, run.id);
        Ok(true)
    }

    /// See [`crate::store::Store::leave_verification`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn leave_verification(&self, run: Run) -> Result<()> {
        let mut state = self.writing()?;
        let checked = state.checked.get_mut(&(run.task, run.provider));
        if let Some(checked) = checked.filter(|known| known.running.is_some_and(|r| r.run == run.id)) {
            checked.running = None;
        }
        Ok(())
    }

    /// See [`crate::store::Store::verifications`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn verifications(&self) -> Result<Vec<Checked>> {
        Ok(self.open()?.checked.values().cloned().collect())
    }

    /// See [`crate::store::Store::certificates`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn certificates(&self, filter: CertificateFilter) -> Result<Vec<Certificate>> {
        let state = self.open()?;
        let newest_first = state.certificates.values().rev();
        Ok(newest_first.filter(|certificate| filter.keeps(certificate)).take(filter.limit).cloned().collect())
    }

    /// See [`crate::store::Store::valid_certificates`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn valid_certificates(&self, task: Text, at: Millis) -> Result<Vec<Certificate>> {
        let state = self.open()?;
        let mut valid: Vec<Certificate> = Vec::new();
        for certificate in state.certificates.values().rev().filter(|c| c.task == task && c.holds(at)) {
            let is_newer = |newer: &Certificate| {
                newer.provider == certificate.provider && newer.contract_digest == certificate.contract_digest
            };
            if !valid.iter().any(is_newer) {
                valid.push(certificate.clone());
            }
        }
        Ok(valid)
    }

    /// See [`crate::store::Store::suspend`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn suspend(&self, suspend: Suspend) -> Result<bool> {
        let mut state = self.writing()?;
        let Some(named) = state.certificates.get(&suspend.certificate).cloned() else { return Ok(false) };
        let of_same_contract = |certificate: &&mut Certificate| {
            certificate.task == named.task
                && certificate.provider == named.provider
                && certificate.contract_digest == named.contract_digest
                && certificate.suspended.is_none()
        };
        let mut suspended = 0;
        for certificate in state.certificates.range_mut(..=named.id).map(|(_, c)| c).filter(of_same_contract) {
            certificate.suspended = Some(Suspension { at: suspend.at, because: suspend.because.clone() });
            suspended += 1;
        }
        if suspended > 0
            && let Some(notice) = named.suspended_notice(&suspend)
        {
            state.note(notice);
        }
        Ok(suspended > 0)
    }

    /// See [`crate::store::Store::prune_certificates`].
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn prune_certificates(&self, ended_before: Millis, limit: usize) -> Result<usize> {
        let mut state = self.writing()?;
        let ended = state.certificates.values().filter(|c| c.ends_at() < ended_before).map(|c| c.id);
        let ended: Vec<CertificateId> = ended.take(limit).collect();
        for id in &ended {
            state.certificates.remove(id);
        }
        Ok(ended.len())
    }
}

impl State {
    /// The start as it may be decided upon; see [`standing`].
    pub(super) fn standing(
        &self,
        start: Start,
        record: &Arc<Record>,
        contracts: Option<&Contracts>,
        at: Millis,
    ) -> Start {
        let found = stands_on(&start).and_then(|id| self.certificates.get(&id));
        standing(start, record, found, contracts, at)
    }

    /// A queued job whose plan stands on a certificate that does not hold.
    pub(super) fn unproved(&self, record: Arc<Record>, at: Millis) -> Unproved {
        let found = planned_on(&record).and_then(|id| self.certificates.get(&id));
        Unproved::of(record, found, at)
    }

    /// The event as it may be decided upon.
    pub(super) fn proved(&self, record: &Arc<Record>, event: Event) -> Event {
        let Event { at, what: What::Start(start) } = event else { return event };
        Event { at, what: What::Start(self.standing(start, record, None, at)) }
    }
}
