//! The wall clock, in the one unit that the rules know.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onejob_core::Millis;
use tokio::time::Instant;

/// Longest single sleep towards a moment of the wall clock. The clock may be set meanwhile; whoever
/// sleeps looks again at least this often.
const LONGEST_NAP: Duration = Duration::from_secs(30);

/// Now.
pub(crate) fn now() -> Millis {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_millis() as Millis,
        Err(before) => -(before.duration().as_millis() as Millis),
    }
}

/// When to look again if it is `now` and something is due at `due`; far away if nothing is.
pub(crate) fn nap(due: Option<Millis>, now: Millis) -> Instant {
    let wait = due.map_or(LONGEST_NAP, |due| Duration::from_millis(due.saturating_sub(now).max(0) as u64));
    Instant::now() + wait.min(LONGEST_NAP)
}
