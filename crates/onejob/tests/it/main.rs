//! Stories at the boundary: HTTP in, HTTP out, the provider's own ledger as the judge.
//!
//! The four breakpoints of the design are the first four files; each reads in a minute.
#![allow(clippy::unwrap_used, clippy::missing_docs_in_private_items, missing_docs)]

mod world;
mod provider;

mod double_click;
mod other_input;
mod timeout;
mod reversed_race;

mod failover;
mod hedging;
mod circuit;
mod retries;
mod cancelling;
mod resolving;
mod scheduling;
mod restarts;
mod kill;
mod bad_requests;
mod waiting;
mod operation;
mod gates;
mod verification;
mod real_provider;

mod command_line;
mod demo;
