//! The database's clock, followed from here: asked now and then, carried on by this machine's monotonic
//! clock in between. All nodes agree to within a round trip, whatever their own clocks say.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use onejob_core::Millis;

use crate::store::nodes::wall_clock;

/// A look that took longer than another says less; after this time it says more all the same.
const FRESH: Duration = Duration::from_secs(30);

/// The last good look.
#[derive(Clone, Copy)]
struct Look {
    /// The middle of the round trip.
    at: Instant,
    said: Millis,
    took: Duration,
}

/// Follows the database's clock.
#[derive(Default)]
pub(super) struct Clock(Mutex<Option<Look>>);

impl Clock {
    /// The database said `said`, in answer to a question asked at `asked`.
    pub(super) fn heard(&self, asked: Instant, said: Millis) {
        let took = asked.elapsed();
        let look = Look { at: asked + took / 2, said, took };
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = last.is_some_and(|last| last.took < took && last.at.elapsed() < FRESH && last.agrees(&look));
        if !keep {
            *last = Some(look);
        }
    }

    /// Now.
    pub(super) fn now(&self) -> Millis {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(look) => look.now(),
            None => wall_clock(),
        }
    }
}

impl Look {
    fn now(&self) -> Millis {
        self.said + self.at.elapsed().as_millis() as Millis
    }

    /// Whether both can be right. If not, the clock was set, or another server answers now.
    fn agrees(&self, later: &Look) -> bool {
        let between = later.at.saturating_duration_since(self.at).as_millis() as Millis;
        let doubt = (self.took + later.took).as_millis() as Millis + 2;
        (self.said + between - later.said).abs() <= doubt
    }
}
