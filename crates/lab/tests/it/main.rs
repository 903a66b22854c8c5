//! The laboratory's tests, in one binary.
#![allow(clippy::unwrap_used)]

mod store_contract;
mod store_model;
mod sqlite;
mod postgres;
mod nodes;
mod liars;
mod tidy;
