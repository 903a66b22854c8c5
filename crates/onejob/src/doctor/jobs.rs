//! What waits: unknown attempts, due jobs, jobs for providers that nobody has.

use super::{Check, count, span};
use crate::config::Config;
use crate::store::examined::ExaminedJobs;

/// An unknown attempt older than this waits for a person: what is late by itself has come by then.
const OLD_UNKNOWN_MS: i64 = 3_600_000;

/// A due job that waits longer than this waits for something that does not come.
const LONG_DUE_MS: i64 = 60_000;

/// What the jobs of a store say.
pub(super) fn judge(config: &Config, jobs: &ExaminedJobs) -> Vec<Check> {
    let mut checks = vec![unknown(jobs), due(jobs)];
    checks.extend(orphans(config, jobs));
    checks
}

fn unknown(jobs: &ExaminedJobs) -> Check {
    const NAME: &str = "jobs.unknown";
    let Some(since) = jobs.unknown_since else { return Check::good(NAME, "no attempt is unknown") };
    let age = jobs.now - since;
    let seen = format!("{}, the oldest for {}", count(jobs.unknown, "unknown attempt", "unknown attempts"), span(age));
    if age < OLD_UNKNOWN_MS {
        return Check::note(NAME, seen);
    }
    Check::finding(
        NAME,
        seen,
        "ask the provider what became of it, and say so: `onejob unknowns`, then `onejob resolve`. If a task's attempts \
         often end so, declare what to do in its on_unknown",
    )
}

fn due(jobs: &ExaminedJobs) -> Check {
    const NAME: &str = "jobs.queued";
    let queued: i64 = jobs.queues.iter().map(|queue| queue.queued).sum();
    let due: i64 = jobs.queues.iter().map(|queue| queue.due).sum();
    let late = jobs.queues.iter().filter(|queue| queue.due > 0);
    let oldest = late.min_by_key(|queue| queue.oldest_due).and_then(|queue| Some((queue, queue.oldest_due?)));
    let Some((queue, since)) = oldest else {
        return Check::good(NAME, format!("{}, none due", count(queued, "queued job", "queued jobs")));
    };
    let (age, provider) = (jobs.now - since, &queue.provider);
    let seen = format!(
        "{}, {due} due; the oldest waits for {provider} for {}",
        count(queued, "queued job", "queued jobs"),
        span(age)
    );
    if age < LONG_DUE_MS {
        return Check::good(NAME, seen);
    }
    Check::finding(
        NAME,
        seen,
        format!(
            "is a node serving? If one is, {provider} is slower than its jobs come: raise providers.{provider}.concurrency \
             as far as it allows, or add nodes"
        ),
    )
}

fn orphans(config: &Config, jobs: &ExaminedJobs) -> Vec<Check> {
    let orphans = jobs.queues.iter().filter(|queue| !config.providers.contains_key(&queue.provider));
    let finding = |queue: &crate::store::examined::ExaminedQueue| {
        let (queued, provider) = (count(queue.queued, "job waits", "jobs wait"), &queue.provider);
        Check::finding(
            "jobs.provider",
            format!("{queued} for the provider {provider}, which is not configured"),
            format!("configure [providers.{provider}] again, or cancel them: `onejob list --state queued`"),
        )
    };
    orphans.map(finding).collect()
}
