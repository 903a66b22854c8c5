//! The way to each provider's host, as far as it can be gone without a request.

use futures_util::future::join_all;
use onejob_core::Text;

use super::{Check, span};
use crate::config::{Config, ProviderConfig};
use crate::provider::Provider;
use crate::provider::http::Reach;

const NAME: &str = "provider";

/// All at once: each has its own connect timeout.
pub(super) async fn judge(config: &Config) -> Vec<Check> {
    join_all(config.providers.iter().map(|(name, provider)| look(name, provider))).await
}

async fn look(name: &Text, config: &ProviderConfig) -> Check {
    let provider = match Provider::open(config) {
        Ok(Provider::Http(provider)) => provider,
        Ok(Provider::Simulated(_)) => return Check::good(NAME, format!("{name}: simulated, needs no network")),
        Ok(Provider::Worker) => return Check::skipped(NAME, format!("{name}: workers come to us")),
        Err(why) => return Check::finding(NAME, format!("{name}: {why}"), "correct its definition; `onejob check`"),
    };
    match provider.reach().await {
        Reach::Reached { place, took } => {
            let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
            Check::good(NAME, format!("{name}: {place} answers within {}", span(took)))
        }
        Reach::DependsOnTheJob => Check::skipped(NAME, format!("{name}: its host can be said only with a job at hand")),
        Reach::Unreachable(why) => Check::finding(
            NAME,
            format!("{name}: {why}"),
            "attempts there end in not_sent and are tried again: look at the name, the firewall and the network of this \
             machine, and at the provider's own page of incidents; for TLS, at this machine's certificates and ca_file",
        ),
    }
}
