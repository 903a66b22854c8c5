//! Certificates and verifications: what is written inside the writer's transaction, and what is read.

use std::sync::Arc;

use onejob_core::{CertificateId, Event, JobId, Millis, Start, Text, What};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{id, id_at, maybe_id_at, maybe_text_at, text_at};
use super::fault::Fault;
use super::read::{AFTER_ALL, limit};
use super::transaction::Transaction;
use super::{SqliteStore, sql};
use crate::store::certificates::{Contracts, VERIFICATION_FAILED, planned_on, standing, stands_on};
use crate::store::{
    Begun, Certificate, CertificateFilter, Checked, Prune, Record, Result as Answer, Run, Running, Suspend, Suspension,
    Unproved, Verification, VerificationId,
};

type Result<T> = std::result::Result<T, Fault>;

impl SqliteStore {
    /// See [`crate::store::Store::begin_verification`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn begin_verification(&self, run: Run, at: Millis, lease_until: Millis) -> Answer<Begun> {
        self.write(move |transaction| transaction.begin_verification(&run, at, lease_until)).await
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
        self.write(move |transaction| transaction.end_verification(&run, &verification, certificate.as_ref())).await
    }

    /// See [`crate::store::Store::leave_verification`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn leave_verification(&self, run: Run) -> Answer<()> {
        self.write(move |transaction| transaction.leave_verification(&run)).await
    }

    /// See [`crate::store::Store::verifications`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn verifications(&self) -> Answer<Vec<Checked>> {
        self.read(verifications).await
    }

    /// See [`crate::store::Store::certificates`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn certificates(&self, filter: CertificateFilter) -> Answer<Vec<Certificate>> {
        self.read(move |connection| certificates(connection, &filter)).await
    }

    /// See [`crate::store::Store::valid_certificates`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn valid_certificates(&self, task: Text, at: Millis) -> Answer<Vec<Certificate>> {
        self.read(move |connection| valid_certificates(connection, &task, at)).await
    }

    /// See [`crate::store::Store::suspend`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn suspend(&self, suspend: Suspend) -> Answer<bool> {
        self.write(move |transaction| transaction.suspend(&suspend)).await
    }

    /// See [`crate::store::Store::prune_certificates`].
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError`].
    pub async fn prune_certificates(&self, ended_before: Millis, limit: usize) -> Answer<usize> {
        self.write(move |transaction| transaction.prune_certificates(ended_before, limit)).await
    }
}

impl Transaction<'_> {
    fn begin_verification(&mut self, run: &Run, at: Millis, lease_until: Millis) -> Result<Begun> {
        let mut statement = self.connection.prepare_cached(sql::BEGIN_VERIFICATION)?;
        if statement.execute(params![run.task, run.provider, id(run.id.0), at, lease_until])? > 0 {
            return Ok(Begun::Yes);
        }
        let mut statement = self.connection.prepare_cached(sql::LEASE_OF_VERIFICATION)?;
        let until = statement.query_row(params![run.task, run.provider], |row| row.get::<_, Option<Millis>>(0))?;
        Ok(Begun::Elsewhere { until: until.unwrap_or(at) })
    }

    fn end_verification(
        &mut self,
        run: &Run,
        verification: &Verification,
        certificate: Option<&Certificate>,
    ) -> Result<bool> {
        let ended = self.connection.prepare_cached(sql::END_VERIFICATION)?.execute(params![
            run.task,
            run.provider,
            id(run.id.0),
            verification.contract_digest,
            verification.started_at,
            verification.ended_at,
            verification.passed,
            verification.report,
            verification.certificate.map(|certificate| id(certificate.0)),
        ])?;
        if ended == 0 {
            let mut statement = self.connection.prepare_cached(sql::LEASE_OF_VERIFICATION)?;
            let last = statement.query_row(params![run.task, run.provider], |row| maybe_id_at(row, 1)).optional()?;
            return Ok(last.flatten() == Some(run.id.0));
        }
        match certificate {
            Some(certificate) => self.certify(certificate)?,
            None if verification.passed => {}
            None => {
                let mut statement = self.connection.prepare_cached(sql::SUSPEND_ALL)?;
                statement.execute(params![run.task, run.provider, verification.ended_at, VERIFICATION_FAILED])?;
            }
        }
        Ok(true)
    }

    fn certify(&mut self, certificate: &Certificate) -> Result<()> {
        self.connection.prepare_cached(sql::CERTIFY)?.execute(params![
            id(certificate.id.0),
            certificate.task,
            certificate.provider,
            certificate.contract_digest,
            certificate.model,
            certificate.detail,
            certificate.issued_at,
            certificate.valid_until,
        ])?;
        Ok(())
    }

    fn leave_verification(&mut self, run: &Run) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql::LEAVE_VERIFICATION)?;
        statement.execute(params![run.task, run.provider, id(run.id.0)])?;
        Ok(())
    }

    fn suspend(&mut self, suspend: &Suspend) -> Result<bool> {
        let mut statement = self.connection.prepare_cached(sql::SUSPEND)?;
        if statement.execute(params![id(suspend.certificate.0), suspend.at, suspend.because])? == 0 {
            return Ok(false);
        }
        let certificate = certificate(self.connection, suspend.certificate)?;
        if let Some(notice) = certificate.and_then(|certificate| certificate.suspended_notice(suspend)) {
            self.note(&notice)?;
        }
        Ok(true)
    }

    fn prune_certificates(&mut self, ended_before: Millis, most: usize) -> Result<usize> {
        let end = Prune { after: JobId(0), ended_before, limit: most }.end();
        let mut statement = self.connection.prepare_cached(sql::PRUNE_CERTIFICATES)?;
        Ok(statement.execute(params![id(end), ended_before, limit(most)])?)
    }

    /// The event as it may be decided upon: a start loses a certificate that does not hold.
    pub(super) fn proved(&self, record: &Record, event: &Event) -> Result<Option<Event>> {
        let What::Start(start) = &event.what else { return Ok(None) };
        if start.certificate.is_none() {
            return Ok(None);
        }
        let what = What::Start(self.standing(start.clone(), record, None, event.at)?);
        Ok(Some(Event { at: event.at, what }))
    }

    /// A queued job whose plan stands on a certificate that does not hold.
    pub(super) fn unproved(&self, record: Arc<Record>, at: Millis) -> Result<Unproved> {
        let found = match planned_on(&record) {
            Some(id) => certificate(self.connection, id)?,
            None => None,
        };
        Ok(Unproved::of(record, found.as_ref(), at))
    }

    /// The start as it may be decided upon; see [`standing`].
    pub(super) fn standing(
        &self,
        start: Start,
        record: &Record,
        contracts: Option<&Contracts>,
        at: Millis,
    ) -> Result<Start> {
        let found = match stands_on(&start) {
            Some(id) => certificate(self.connection, id)?,
            None => None,
        };
        Ok(standing(start, record, found.as_ref(), contracts, at))
    }
}

fn certificate(connection: &Connection, wanted: CertificateId) -> Result<Option<Certificate>> {
    let mut statement = connection.prepare_cached(sql::CERTIFICATE_BY_ID)?;
    Ok(statement.query_row(params![id(wanted.0)], read_certificate).optional()?)
}

fn certificates(connection: &Connection, filter: &CertificateFilter) -> Result<Vec<Certificate>> {
    let mut statement = connection.prepare_cached(sql::LIST_CERTIFICATES)?;
    let bound = params![&AFTER_ALL[..], filter.task, filter.provider, limit(filter.limit)];
    Ok(statement.query_map(bound, read_certificate)?.collect::<rusqlite::Result<_>>()?)
}

fn valid_certificates(connection: &Connection, task: &Text, at: Millis) -> Result<Vec<Certificate>> {
    let mut statement = connection.prepare_cached(sql::VALID_CERTIFICATES)?;
    let rows = statement.query_map(params![task, at], read_certificate)?;
    let mut valid: Vec<Certificate> = rows.collect::<rusqlite::Result<_>>()?;
    valid.sort_by_key(|certificate| std::cmp::Reverse(certificate.id));
    Ok(valid)
}

fn verifications(connection: &Connection) -> Result<Vec<Checked>> {
    let mut statement = connection.prepare_cached(sql::VERIFICATIONS)?;
    Ok(statement.query_map([], read_checked)?.collect::<rusqlite::Result<_>>()?)
}

fn read_certificate(row: &Row<'_>) -> rusqlite::Result<Certificate> {
    let suspended = match (row.get(8)?, maybe_text_at(row, 9)?) {
        (Some(at), Some(because)) => Some(Suspension { at, because }),
        (None, _) | (_, None) => None,
    };
    Ok(Certificate {
        id: CertificateId(id_at(row, 0)?),
        task: text_at(row, 1)?,
        provider: text_at(row, 2)?,
        contract_digest: row.get(3)?,
        model: maybe_text_at(row, 4)?,
        detail: text_at(row, 5)?,
        issued_at: row.get(6)?,
        valid_until: row.get(7)?,
        suspended,
    })
}

fn read_checked(row: &Row<'_>) -> rusqlite::Result<Checked> {
    let running = match maybe_id_at(row, 2)? {
        Some(run) => Some(Running { run: VerificationId(run), since: row.get(3)?, until: row.get(4)? }),
        None => None,
    };
    let last = match row.get::<_, Option<[u8; 32]>>(5)? {
        Some(contract_digest) => Some(Verification {
            contract_digest,
            started_at: row.get(6)?,
            ended_at: row.get(7)?,
            passed: row.get(8)?,
            report: text_at(row, 9)?,
            certificate: maybe_id_at(row, 10)?.map(CertificateId),
        }),
        None => None,
    };
    Ok(Checked { task: text_at(row, 0)?, provider: text_at(row, 1)?, running, last })
}
