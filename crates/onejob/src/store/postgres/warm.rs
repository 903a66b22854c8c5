//! Before the first job comes: a new process of the server reads about tables, functions and triggers what it
//! needs for its first statements, and makes their plans. That takes longer than many jobs do.

use std::sync::Arc;

use futures_util::future::join_all;

use super::columns::{bind_attempts, bind_completed, bind_jobs, bind_starts, id};
use super::fault::Fault;
use super::link::{Call, First, column, value};
use super::{Shared, sql};
use crate::store::StoreError;

/// Opens every connection that gathers, and has it write nothing once. What fails here fails again for the
/// first who needs it, and is told there.
pub(super) async fn warm(shared: Arc<Shared>) {
    let (posts, commands) = shared.options.lanes;
    for warmed in join_all((0..posts + commands).map(|_| warm_one(&shared))).await {
        if let Err(fault) = warmed {
            tracing::debug!(error = %StoreError::from(fault), "a connection could not be made ready");
        }
    }
}

async fn warm_one(shared: &Shared) -> Result<(), Fault> {
    let mut link = shared.lanes.get().await?;
    let no_keys = || column(&[] as &[&str], |key| *key);
    let calls = [
        Call::new(&sql::SUBMIT, bind_jobs(&[])),
        Call::new(&sql::TOMBSTONE, vec![no_keys(), no_keys()]),
        Call::new(&sql::START, bind_starts(&[])),
        Call::new(&sql::COMPLETE, bind_completed(&[])),
        Call::new(&sql::WRITE_ATTEMPT, bind_attempts(&[])),
        Call::new(&sql::LEASE, vec![value(id(0))]),
    ];
    link.run(First::Begin, &calls).await?;
    link.roll_back().await;
    Ok(())
}
