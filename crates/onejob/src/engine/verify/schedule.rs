//! `verify_every`: certificates that are renewed before they end.

use std::collections::HashMap;
use std::time::Duration;

use onejob_core::{Millis, Text};
use tracing::warn;

use super::super::{Engine, Inner, Stage};
use super::{AskedBy, Standing, millis};
use crate::config::Contract;

/// Between two looks for contracts whose `verify_every` has passed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Between two runs that were left undecided.
const UNDECIDED_PAUSE_MS: Millis = 10 * 60 * 1000;

/// Renews certificates before they end, where contracts say so: of every provider but the first, which
/// needs none.
pub(crate) async fn keep_verified(engine: Engine) {
    let inner = engine.inner.clone();
    let mut stage = inner.stage.subscribe();
    let mut tried: HashMap<(Text, Text), Millis> = HashMap::new();
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            () = tokio::time::sleep(LOOK_EVERY.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
        }
        let due = match engine.contracts().await {
            Ok(standings) => standings.into_iter().filter(|standing| is_due(&inner, standing)).collect::<Vec<_>>(),
            Err(error) => {
                warn!(%error, "could not look for contracts to verify");
                continue;
            }
        };
        for Standing { task, provider, .. } in due {
            let key = (task.name.clone(), provider.name.clone());
            let now = inner.now();
            if inner.draining() || tried.get(&key).is_some_and(|at| now < at + UNDECIDED_PAUSE_MS) {
                continue;
            }
            tried.insert(key, now);
            if let Err(error) = engine.verify(&task.name, &provider.name, AskedBy::Schedule).await {
                warn!(%error, task = %task.name, provider = %provider.name, "could not verify");
            }
        }
    }
}

pub(super) fn is_due(inner: &Inner, standing: &Standing) -> bool {
    let Standing { task, provider, checked, .. } = standing;
    let Some(Contract { verify_every: Some(every), .. }) = &task.contract else { return false };
    if task.providers.first() == Some(&provider.name) {
        return false;
    }
    let digest = inner.config.contract_digest(task, provider);
    let last = checked.as_ref().and_then(|checked| checked.last.as_ref());
    let last = last.filter(|last| last.contract_digest == digest);
    last.is_none_or(|last| inner.now() >= last.ended_at.saturating_add(millis(*every)))
}
