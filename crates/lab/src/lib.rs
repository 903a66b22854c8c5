//! What breaks onejob: the misbehaving provider, the store contract suite, model checks, chaos runs.
//! Never published.

pub mod store_contract;
pub mod gauge;
pub mod postgres;
pub mod proxy;
pub mod nodes;
pub mod races;
pub mod fuzz;
pub mod liars;
pub mod models;
pub mod walls;
pub mod versions;
pub mod figures;
