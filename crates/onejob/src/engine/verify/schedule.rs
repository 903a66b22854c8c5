//! `verify_every`: certificates that are renewed before they end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onejob_core::{Millis, Text};
use tracing::warn;

use super::super::{Engine, Inner, Stage};
use super::{AskedBy, Verified, millis};
use crate::config::{Contract, ProviderConfig, Task};
use crate::contract::report::Verdict;
use crate::store::{Checked, StoreError};

/// Between two looks for contracts whose `verify_every` has passed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// After the first run in a row that was left undecided; twice as long after each further one, for every run is
/// paid.
const UNDECIDED_PAUSE_MS: Millis = 10 * 60 * 1000;

/// The longest such pause.
const LONGEST_PAUSE_MS: Millis = 24 * 60 * 60 * 1000;

/// Runs of a pair in a row that told nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Misses {
    count: u32,
    not_before: Millis,
}

/// Renews certificates before they end, where contracts say so: of every provider but the first, which
/// needs none.
pub(crate) async fn keep_verified(engine: Engine) {
    let inner = engine.inner.clone();
    if pairs(&inner).is_empty() {
        return;
    }
    let mut stage = inner.stage.subscribe();
    let mut misses: HashMap<(Text, Text), Misses> = HashMap::new();
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            () = tokio::time::sleep(LOOK_EVERY.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
        }
        let known = match inner.store.verifications().await {
            Ok(known) => known,
            Err(error) => {
                warn!(%error, "could not look for contracts to verify");
                continue;
            }
        };
        let due = pairs(&inner).into_iter().filter(|(task, provider)| is_due(&inner, task, provider, &known));
        for (task, provider) in due {
            let missed = misses.entry((task.name.clone(), provider.name.clone())).or_default();
            if inner.draining() || inner.now() < missed.not_before() {
                continue;
            }
            let ended = engine.verify(&task.name, &provider.name, AskedBy::Schedule).await;
            if let Err(error) = &ended {
                warn!(%error, task = %task.name, provider = %provider.name, "could not verify");
            }
            *missed = missed.after(&ended, inner.now());
        }
    }
}

impl Misses {
    /// No run before that.
    pub(super) fn not_before(self) -> Millis {
        self.not_before
    }

    /// What a run that told something leaves is in the store, and says when the next is due.
    pub(super) fn after(self, ended: &Result<Verified, StoreError>, now: Millis) -> Misses {
        let told_nothing = match ended {
            Ok(Verified::Done(report, _)) => report.verdict() == Verdict::Undecided,
            // It was paid for, if it began.
            Err(_) => true,
            Ok(
                Verified::InFlight { .. }
                | Verified::NoSuchTask
                | Verified::NoSuchProvider
                | Verified::NoContract
                | Verified::NotSupported
                | Verified::Stopping,
            ) => return self,
        };
        if !told_nothing {
            return Misses::default();
        }
        let pause = UNDECIDED_PAUSE_MS << self.count.min(10);
        Misses { count: self.count.saturating_add(1), not_before: now + pause.min(LONGEST_PAUSE_MS) }
    }
}

/// What is verified by itself.
fn pairs(inner: &Inner) -> Vec<(&Arc<Task>, &Arc<ProviderConfig>)> {
    let tasks = inner.config.tasks.values();
    let tasks = tasks.filter(|task| task.contract.as_ref().is_some_and(|contract| contract.verify_every.is_some()));
    let of_task = |task| {
        let task: &Arc<Task> = task;
        let names = task.providers.iter().skip(1);
        names.filter_map(|name| inner.config.providers.get(name)).map(move |provider| (task, provider))
    };
    tasks.flat_map(of_task).collect()
}

pub(super) fn is_due(inner: &Inner, task: &Task, provider: &ProviderConfig, known: &[Checked]) -> bool {
    let Some(Contract { verify_every: Some(every), .. }) = &task.contract else { return false };
    if task.providers.first() == Some(&provider.name) {
        return false;
    }
    let digest = inner.config.contract_digest(task, provider);
    let checked = known.iter().find(|checked| checked.task == task.name && checked.provider == provider.name);
    let last = checked.and_then(|checked| checked.last.as_ref());
    let last = last.filter(|last| last.contract_digest == digest);
    last.is_none_or(|last| inner.now() >= last.ended_at.saturating_add(millis(*every)))
}
