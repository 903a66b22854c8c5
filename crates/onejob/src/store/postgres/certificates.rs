//! Certificates and verifications: small transactions of their own, and the rows that a start holds.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onejob_core::{CertificateId, Event, JobId, Millis, Start, Text, What};
use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::{at, bind_notices, holdable, id, id_at, maybe_id_at, maybe_text_at, text_at};
use super::fault::Fault;
use super::lane::{RETRIES, step_aside};
use super::link::{Bound, Call, First, Link, column, value};
use super::{PostgresStore, Shared, sql};
use crate::store::certificates::{Contracts, VERIFICATION_FAILED, planned_on, standing, stands_on};
use crate::store::{
    Begun, Certificate, CertificateFilter, Checked, Prune, Record, Result as Answer, Run, Running, Suspend, Suspension,
    Unproved, Verification, VerificationId,
};

type Result<T> = std::result::Result<T, Fault>;

impl PostgresStore {
    /// See [`crate::store::Store::begin_verification`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn begin_verification(&self, run: Run, now: Millis, lease_until: Millis) -> Answer<Begun> {
        // A commit whose end is not known does no harm: the same run keeps what it has.
        let begin = || self.shared.begin_verification(&run, now, lease_until);
        Ok(again(begin).await?)
    }

    /// See [`crate::store::Store::end_verification`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn end_verification(
        &self,
        run: Run,
        verification: Verification,
        certificate: Option<Certificate>,
    ) -> Answer<bool> {
        // The row remembers its last run: one that ended finds itself there.
        let end = || self.shared.end_verification(&run, &verification, certificate.as_ref());
        Ok(again(end).await?)
    }

    /// See [`crate::store::Store::leave_verification`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn leave_verification(&self, run: Run) -> Answer<()> {
        let leave = || self.shared.leave_verification(&run);
        Ok(again(leave).await?)
    }

    /// See [`crate::store::Store::verifications`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn verifications(&self) -> Answer<Vec<Checked>> {
        let rows = self.shared.reads.ask(&sql::VERIFICATIONS, Vec::new()).await?;
        Ok(rows.iter().map(read_checked).collect::<Result<_>>()?)
    }

    /// See [`crate::store::Store::certificates`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn certificates(&self, filter: CertificateFilter) -> Answer<Vec<Certificate>> {
        let bound = vec![
            value(Uuid::max()),
            value(filter.task.as_deref()),
            value(filter.provider.as_deref()),
            value(i64::try_from(filter.limit).unwrap_or(i64::MAX)),
        ];
        let rows = self.shared.reads.ask(&sql::LIST_CERTIFICATES, bound).await?;
        Ok(rows.iter().map(read_certificate).collect::<Result<_>>()?)
    }

    /// See [`crate::store::Store::valid_certificates`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn valid_certificates(&self, task: Text, now: Millis) -> Answer<Vec<Certificate>> {
        let rows = self.shared.reads.ask(&sql::VALID_CERTIFICATES, vec![value(&*task), value(now)]).await?;
        let mut valid: Vec<Certificate> = rows.iter().map(read_certificate).collect::<Result<_>>()?;
        valid.sort_by_key(|certificate| std::cmp::Reverse(certificate.id));
        Ok(valid)
    }

    /// See [`crate::store::Store::suspend`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn suspend(&self, suspend: Suspend) -> Answer<bool> {
        let suspend_it = || self.shared.suspend(&suspend);
        Ok(again(suspend_it).await?)
    }

    /// See [`crate::store::Store::prune_certificates`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn prune_certificates(&self, ended_before: Millis, limit: usize) -> Answer<usize> {
        let prune = || self.shared.prune_certificates(ended_before, limit);
        Ok(again(prune).await?)
    }
}

/// Runs a small transaction that may be repeated, whatever became of it.
async fn again<T, F: Future<Output = Result<T>>>(step: impl Fn() -> F) -> Result<T> {
    let mut tries = 0;
    loop {
        match step().await {
            Err(Fault::Retry(_) | Fault::Away(_) | Fault::Ambiguous(_)) if tries < RETRIES => {
                tries += 1;
                step_aside(tries).await;
            }
            end => return end,
        }
    }
}

impl Shared {
    async fn begin_verification(&self, run: &Run, now: Millis, lease_until: Millis) -> Result<Begun> {
        self.counters.commands(1);
        let mut link = self.work.get().await?;
        let bound = vec![value(&*run.task), value(&*run.provider), value(id(run.id.0)), value(now), value(lease_until)];
        let calls = [
            Call::new(&sql::BEGIN_VERIFICATION, bound),
            Call::new(&sql::LEASE_OF_VERIFICATION, vec![value(&*run.task), value(&*run.provider)]),
        ];
        let answers = link.run(First::Begin, &calls).await?;
        let Some(lease) = answers[1].first() else {
            return Err(Fault::Row("begin_verification.sql left no row".into()));
        };
        let until = at::<Option<Millis>>(lease, 0)?.unwrap_or(now);
        let begun = !answers[0].is_empty();
        self.commit(link).await?;
        Ok(if begun { Begun::Yes } else { Begun::Elsewhere { until } })
    }

    async fn end_verification(
        &self,
        run: &Run,
        verification: &Verification,
        certificate: Option<&Certificate>,
    ) -> Result<bool> {
        self.counters.commands(1);
        let mut link = self.work.get().await?;
        let calls = [
            Call::new(&sql::END_VERIFICATION, bind_end(run, verification)),
            Call::new(&sql::LEASE_OF_VERIFICATION, vec![value(&*run.task), value(&*run.provider)]),
        ];
        let answers = link.run(First::Begin, &calls).await?;
        if answers[0].is_empty() {
            link.roll_back().await;
            let last = answers[1].first().map(|row| maybe_id_at(row, 1)).transpose()?;
            return Ok(last.flatten() == Some(run.id.0));
        }
        let call = match certificate {
            Some(certificate) => Some(Call::new(&sql::CERTIFY, bind_certificate(certificate))),
            None if verification.passed => None,
            None => Some(Call::new(
                &sql::SUSPEND_ALL,
                vec![
                    value(&*run.task),
                    value(&*run.provider),
                    value(verification.ended_at),
                    value(VERIFICATION_FAILED),
                ],
            )),
        };
        if let Some(call) = call {
            let written = link.run(First::GoOn, &[call]).await;
            if let Err(Fault::Row(why)) = written {
                link.roll_back().await;
                return Err(Fault::Row(why));
            }
            written?;
        }
        self.commit(link).await?;
        Ok(true)
    }

    async fn leave_verification(&self, run: &Run) -> Result<()> {
        self.counters.commands(1);
        let mut link = self.work.get().await?;
        let bound = vec![value(&*run.task), value(&*run.provider), value(id(run.id.0))];
        link.run(First::Begin, &[Call::new(&sql::LEAVE_VERIFICATION, bound)]).await?;
        self.commit(link).await
    }

    async fn suspend(&self, suspend: &Suspend) -> Result<bool> {
        self.counters.commands(1);
        let mut link = self.work.get().await?;
        let bound = vec![value(id(suspend.certificate.0)), value(suspend.at), value(holdable(Some(&suspend.because)))];
        let answers = link.run(First::Begin, &[Call::new(&sql::SUSPEND, bound)]).await?;
        let Some(row) = answers[0].first() else {
            link.roll_back().await;
            return Ok(false);
        };
        let notice = read_certificate(row)?.suspended_notice(suspend);
        if let Some(notice) = notice {
            link.run(First::GoOn, &[Call::new(&sql::NOTICE, bind_notices(&[notice]))]).await?;
        }
        self.commit(link).await?;
        Ok(true)
    }

    async fn prune_certificates(&self, ended_before: Millis, limit: usize) -> Result<usize> {
        self.counters.commands(1);
        let mut link = self.work.get().await?;
        let end = Prune { after: JobId(0), ended_before, limit }.end();
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let bound = vec![value(id(end)), value(ended_before), value(most)];
        let answers = link.run(First::Begin, &[Call::new(&sql::PRUNE_CERTIFICATES, bound)]).await?;
        let pruned = answers[0].len();
        self.commit(link).await?;
        Ok(pruned)
    }

    async fn commit(&self, link: Link<'_>) -> Result<()> {
        link.commit().await?;
        self.counters.commit();
        Ok(())
    }
}

/// Certificates whose rows a transaction holds.
#[derive(Default)]
pub(super) struct Held(HashMap<CertificateId, Certificate>);

impl Held {
    /// Reads and holds the rows of what these starts stand on.
    pub(super) async fn of<'a>(
        link: &mut Link<'_>,
        first: First,
        starts: impl Iterator<Item = &'a Start>,
    ) -> Result<Held> {
        let wanted: Vec<CertificateId> = starts.filter_map(stands_on).collect::<BTreeSet<_>>().into_iter().collect();
        if wanted.is_empty() {
            return Ok(Held::default());
        }
        let bound = vec![column(&wanted, |certificate| id(certificate.0))];
        let answers = link.run(first, &[Call::new(&sql::HOLD_CERTIFICATES, bound)]).await?;
        let read = answers[0].iter().map(|row| read_certificate(row).map(|certificate| (certificate.id, certificate)));
        Ok(Held(read.collect::<Result<_>>()?))
    }

    /// The start as it may be decided upon; see [`standing`].
    pub(super) fn standing(&self, start: Start, record: &Record, contracts: Option<&Contracts>, now: Millis) -> Start {
        let found = stands_on(&start).and_then(|certificate| self.0.get(&certificate));
        standing(start, record, found, contracts, now)
    }

    /// A queued job whose plan stands on a certificate that does not hold.
    pub(super) fn unproved(&self, record: Arc<Record>, now: Millis) -> Unproved {
        let found = planned_on(&record).and_then(|certificate| self.0.get(&certificate));
        Unproved::of(record, found, now)
    }

    /// The event as it may be decided upon: a start loses a certificate that does not hold.
    pub(super) fn proved(&self, record: &Record, event: &Event) -> Event {
        let Event { at, what: What::Start(start) } = event else { return event.clone() };
        Event { at: *at, what: What::Start(self.standing(start.clone(), record, None, *at)) }
    }
}

fn bind_end<'a>(run: &'a Run, verification: &'a Verification) -> Bound<'a> {
    vec![
        value(&*run.task),
        value(&*run.provider),
        value(id(run.id.0)),
        value(&verification.contract_digest[..]),
        value(verification.started_at),
        value(verification.ended_at),
        value(verification.passed),
        value(&*verification.report),
        value(verification.certificate.map(|certificate| id(certificate.0))),
    ]
}

fn bind_certificate(certificate: &Certificate) -> Bound<'_> {
    vec![
        value(id(certificate.id.0)),
        value(&*certificate.task),
        value(&*certificate.provider),
        value(&certificate.contract_digest[..]),
        value(holdable(certificate.model.as_ref())),
        value(&*certificate.detail),
        value(certificate.issued_at),
        value(certificate.valid_until),
    ]
}

fn read_certificate(row: &Row) -> Result<Certificate> {
    let suspended = match (at(row, 8)?, maybe_text_at(row, 9)?) {
        (Some(at), Some(because)) => Some(Suspension { at, because }),
        (None, _) | (_, None) => None,
    };
    Ok(Certificate {
        id: CertificateId(id_at(row, 0)?),
        task: text_at(row, 1)?,
        provider: text_at(row, 2)?,
        contract_digest: digest(at(row, 3)?)?,
        model: maybe_text_at(row, 4)?,
        detail: text_at(row, 5)?,
        issued_at: at(row, 6)?,
        valid_until: at(row, 7)?,
        suspended,
    })
}

fn read_checked(row: &Row) -> Result<Checked> {
    let running = match at::<Option<Uuid>>(row, 2)? {
        Some(run) => Some(Running { run: VerificationId(run.as_u128()), since: at(row, 3)?, until: at(row, 4)? }),
        None => None,
    };
    let last = match at::<Option<&[u8]>>(row, 5)? {
        Some(bytes) => Some(Verification {
            contract_digest: digest(bytes)?,
            started_at: at(row, 6)?,
            ended_at: at(row, 7)?,
            passed: at(row, 8)?,
            report: text_at(row, 9)?,
            certificate: maybe_id_at(row, 10)?.map(CertificateId),
        }),
        None => None,
    };
    Ok(Checked { task: text_at(row, 0)?, provider: text_at(row, 1)?, running, last })
}

fn digest(bytes: &[u8]) -> Result<[u8; 32]> {
    bytes.try_into().map_err(|_| Fault::Row("contract_digest has another length".into()))
}
