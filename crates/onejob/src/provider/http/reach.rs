//! Whether a provider's host can be reached at all: name, address, TCP, TLS, and not a byte of a request.

use std::time::{Duration, Instant};

use super::HttpProvider;

/// How far the way to a provider is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// A connection was opened and closed again.
    Reached {
        /// Host and port.
        place: String,
        /// How long that took.
        took: Duration,
    },
    /// Where it is can be said only with a job at hand.
    DependsOnTheJob,
    /// There is no way; a sentence about the host.
    Unreachable(String),
}

impl HttpProvider {
    /// Opens a connection as a call would, and closes it: nothing is sent that a provider could bill.
    pub async fn reach(&self) -> Reach {
        let Some(origin) = self.renderer.fixed_origin() else { return Reach::DependsOnTheJob };
        let began = Instant::now();
        match self.connector.connect(&origin).await {
            Ok(connection) => {
                drop(connection);
                Reach::Reached { place: format!("{}:{}", origin.host, origin.port), took: began.elapsed() }
            }
            Err(reason) => Reach::Unreachable(reason),
        }
    }
}
