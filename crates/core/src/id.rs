//! Ids: 128 bits each, drawn outside (UUIDv7, so that rows sort by birth). The text forms `job_…`
//! and `att_…` belong to the product crate; here an id is only something to compare.

/// Names one job for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u128);

/// Names one attempt for ever; also the idempotency key that providers see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptId(pub u128);

/// Names the certificate on which an attempt at another provider stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CertificateId(pub u128);

/// Boot id of one running process: a new one at each start, so that a restarted node never takes
/// its predecessor's attempts for its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u128);
