//! onejob: one durable job per intent, many attempts, one winner.
//!
//! The library embeds the engine in a Rust service; the binary `onejob` puts an HTTP API and a
//! command line around it. The rules live in [`onejob_core`]; this crate supplies the clock, the
//! database, the network and the words people read.

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
pub mod cli;
