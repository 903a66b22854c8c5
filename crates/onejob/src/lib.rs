//! onejob: one durable job per intent, many attempts, one winner.
//!
//! The library embeds the engine in a Rust service; the binary `onejob` puts an HTTP API and a
//! command line around it. The rules live in [`onejob_core`]; this crate supplies the clock, the
//! database, the network and the words people read.
//!
//! Start at [`Onejob`]: open it, run it, [`submit`](Onejob::submit) to it. Jobs of a service that keeps its
//! own tables in the same PostgreSQL database can be part of its transactions:
//! [`Onejob::submit_in`].

pub mod id;
pub mod json;
pub mod intent;
pub mod template;
pub mod config;
pub mod store;
pub mod provider;
pub mod contract;
pub mod engine;
pub mod api;
pub mod doctor;
pub mod cli;
pub mod embed;

pub use config::{Config, ConfigErrors};
pub use embed::{CallError, JobRequest, Onejob};
pub use engine::{ByHand, Invalid, OpenError, Refusal, Resolved, SubmitInError, Uncommitted, Word};
pub use onejob_core::{
    Attempt, AttemptId, AttemptState, AttemptStateName, Illegal, Job, JobId, JobState, Millis, Slot, Verdict,
};
pub use store::{
    Applied, AttemptFilter, JobFilter, ListedAttempt, Record, StoreError, StoredNotice, Submitted, Tombstone,
};

pub use store::postgres::WithinError;

// In the versions that this crate was built with, for whoever mounts the router or brings a transaction.
pub use axum;
pub use tokio_postgres;
