//! A provider that refuses everything is not asked by every job first: its circuit opens, and jobs that have
//! a proved place to go go there. It is a preference and holds nobody up: whoever has nowhere else to go
//! asks all the same, and is the best probe there is.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many refusals in a row open it. One or two are the weather, and tries are there for them; five in a
/// row from a provider that answers anything else now and then are rare: at one refusal in four, one in a
/// thousand.
const REFUSALS: u32 = 5;

/// How long it stays open before it is looked at again: doubles from the first to the second.
const PERIOD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The longest time for which a provider's own Retry-After is believed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Whether a provider has lately refused everything.
#[derive(Default)]
pub(crate) struct Circuit {
    /// The same as `state.open.is_some()`: nearly always false, and asked for every job.
    is_open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_a_row: u32,
    open: Option<Open>,
}

#[derive(Clone, Copy)]
struct Open {
    period: Duration,
    /// Refusals before this moment are of calls that were on their way.
    until: Instant,
    /// From this moment on one more job may go there first, to see.
    probe_at: Instant,
}

impl Circuit {
    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether a job that has another place to go should go there. If not although it is open, the job is
    /// the probe of this period, and the next one is told otherwise.
    pub(crate) fn diverts(&self) -> bool {
        if !self.is_open() {
            return false;
        }
        let now = Instant::now();
        match &mut self.lock().open {
            Some(open) if now >= open.probe_at => {
                open.probe_at = now + open.period;
                false
            }
            Some(_) => true,
            None => false,
        }
    }

    /// It said no before doing anything, or could not be reached. True if this opens the circuit.
    pub(crate) fn refused(&self, retry_after_ms: Option<u64>) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        state.in_a_row = state.in_a_row.saturating_add(1);
        let was_open = state.open.is_some();
        let period = match state.open {
            None if state.in_a_row < REFUSALS => return false,
            None => PERIOD.0,
            Some(open) if now < open.until => return false,
            Some(open) => (open.period * 2).min(PERIOD.1),
        };
        let asked_for = retry_after_ms.map(Duration::from_millis).map(|asked| asked.min(LONGEST_RETRY_AFTER));
        let own = spread(period);
        // "Come back at once", from one that has just refused five: it is looked at, and not by every job.
        let until = now + asked_for.map_or(own, |asked| asked.max(own));
        state.open = Some(Open { period, until, probe_at: until });
        self.is_open.store(true, Ordering::Relaxed);
        !was_open
    }

    /// It answered, whatever it said. True if this closes the circuit.
    pub(crate) fn answered(&self) -> bool {
        let mut state = self.lock();
        state.in_a_row = 0;
        self.is_open.store(false, Ordering::Relaxed);
        state.open.take().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Three to five quarters of it: nodes that were refused together must not come back together.
fn spread(period: Duration) -> Duration {
    period.mul_f64(0.75 + fastrand::f64() / 2.0)
}
