//! Ids as people see them: TypeIDs (`job_…`, `att_…`) over UUIDv7.

#[cfg(test)]
mod tests;

use onejob_core::{AttemptId, CertificateId, JobId, NodeId};
use type_safe_id::{DynamicType, TypeSafeId};
use uuid::Uuid;

use crate::store::VerificationId;

const JOB: &str = "job";
const ATTEMPT: &str = "att";
const CERTIFICATE: &str = "cert";

/// A new job id; later ids sort after earlier ones.
pub fn new_job_id() -> JobId {
    JobId(Uuid::now_v7().as_u128())
}

/// A new attempt id; later ids sort after earlier ones.
pub fn new_attempt_id() -> AttemptId {
    AttemptId(Uuid::now_v7().as_u128())
}

/// A new certificate id; later ids sort after earlier ones.
pub fn new_certificate_id() -> CertificateId {
    CertificateId(Uuid::now_v7().as_u128())
}

/// Names a new run of a contract.
pub fn new_verification_id() -> VerificationId {
    VerificationId(Uuid::now_v7().as_u128())
}

/// A new boot id, drawn once per process.
pub fn new_node_id() -> NodeId {
    NodeId(Uuid::now_v7().as_u128())
}

/// `job_…`
pub fn job_text(id: JobId) -> String {
    text(JOB, id.0)
}

/// `att_…`
pub fn attempt_text(id: AttemptId) -> String {
    text(ATTEMPT, id.0)
}

/// `cert_…`
pub fn certificate_text(id: CertificateId) -> String {
    text(CERTIFICATE, id.0)
}

/// Reads `job_…`; `None` if it is not the text of a job id.
pub fn parse_job(text: &str) -> Option<JobId> {
    parse(JOB, text).map(JobId)
}

/// Reads `cert_…`; `None` if it is not the text of a certificate's id.
pub fn parse_certificate(text: &str) -> Option<CertificateId> {
    parse(CERTIFICATE, text).map(CertificateId)
}

/// Reads `att_…`; `None` if it is not the text of an attempt id.
pub fn parse_attempt(text: &str) -> Option<AttemptId> {
    parse(ATTEMPT, text).map(AttemptId)
}

fn text(prefix: &str, id: u128) -> String {
    match DynamicType::new(prefix) {
        Ok(kind) => TypeSafeId::from_type_and_uuid(kind, Uuid::from_u128(id)).to_string(),
        Err(error) => unreachable!("{prefix} is a valid prefix: {error}"),
    }
}

fn parse(prefix: &str, text: &str) -> Option<u128> {
    let id: TypeSafeId<DynamicType> = text.parse().ok()?;
    (id.type_prefix() == prefix).then(|| id.uuid().as_u128())
}
