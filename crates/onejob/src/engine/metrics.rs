//! What is counted, for Prometheus.

use onejob_core::{JobState, Next, Verdict, What};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::store::{Census, Work};

/// Label of jobs.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Outcome {
    /// `created`, `succeeded`, `failed`, `cancelled`.
    pub outcome: &'static str,
}

/// Labels of attempts.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct AttemptOutcome {
    /// The provider's name.
    pub provider: String,
    /// `started`, or what [`outcome`] says.
    pub outcome: String,
}

/// Labels of requests.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Request {
    /// The route's pattern, never the path.
    pub route: String,
    /// HTTP status code.
    pub status: u16,
}

/// All counters of a node.
pub struct Metrics {
    registry: Registry,
    pub(crate) jobs: Family<Outcome, Counter>,
    pub(crate) duplicates: Counter,
    pub(crate) joined: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) attempts: Family<AttemptOutcome, Counter>,
    pub(crate) races_lost: Counter,
    pub(crate) duplicate_effects: Counter,
    pub(crate) suspended: Counter,
    pub(crate) hedges: Counter,
    pub(crate) circuit_open: Family<AttemptProvider, Gauge>,
    pub(crate) store_errors: Counter,
    pub(crate) attempt_seconds: Family<AttemptProvider, Histogram>,
    pub(crate) start_seconds: Histogram,
    pub(crate) request_seconds: Family<Request, Histogram>,
    in_flight: Gauge,
    queued: Gauge,
    unknown: Gauge,
    unknown_oldest: Gauge,
    due_oldest: Gauge,
    commits: Gauge,
    commands: Gauge,
    log_bytes: Gauge,
}

/// Label of what is measured at providers.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct AttemptProvider {
    /// The provider's name.
    pub provider: String,
}

fn short() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 18))
}

fn long() -> Histogram {
    Histogram::new(exponential_buckets(0.005, 2.0, 20))
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Counters at zero.
    pub fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("onejob"),
            jobs: Family::default(),
            duplicates: Counter::default(),
            joined: Counter::default(),
            conflicts: Counter::default(),
            attempts: Family::default(),
            races_lost: Counter::default(),
            duplicate_effects: Counter::default(),
            suspended: Counter::default(),
            hedges: Counter::default(),
            circuit_open: Family::default(),
            store_errors: Counter::default(),
            attempt_seconds: Family::new_with_constructor(long),
            start_seconds: short(),
            request_seconds: Family::new_with_constructor(short),
            in_flight: Gauge::default(),
            queued: Gauge::default(),
            unknown: Gauge::default(),
            unknown_oldest: Gauge::default(),
            due_oldest: Gauge::default(),
            commits: Gauge::default(),
            commands: Gauge::default(),
            log_bytes: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("jobs", "Jobs made and ended, by outcome", self.jobs.clone());
        r.register("duplicates", "Posts that found their job made already", self.duplicates.clone());
        r.register("duplicates_joined", "Of these, posts that joined one in flight on this node", self.joined.clone());
        r.register("conflicts", "Posts refused because their key names another intent", self.conflicts.clone());
        r.register("attempts", "Attempts by provider and outcome", self.attempts.clone());
        r.register("races_lost", "Attempts that ended after the slot was closed", self.races_lost.clone());
        r.register(
            "duplicate_effects",
            "Of these, attempts that had succeeded: somebody may owe a refund",
            self.duplicate_effects.clone(),
        );
        r.register(
            "certificates_suspended",
            "Certificates taken back because of an answer, or by hand",
            self.suspended.clone(),
        );
        r.register("hedges", "Attempts that race a silent one", self.hedges.clone());
        r.register(
            "provider_circuit_open",
            "1 while a provider refuses everything and jobs with a proved place to go go there",
            self.circuit_open.clone(),
        );
        r.register("store_errors", "Calls to the store that failed", self.store_errors.clone());
        r.register("attempt_seconds", "From start to end of an attempt", self.attempt_seconds.clone());
        r.register(
            "start_seconds",
            "From the post, or the moment asked for, to the start of a job's first attempt",
            self.start_seconds.clone(),
        );
        r.register("http_request_seconds", "Requests to this server", self.request_seconds.clone());
        r.register(
            "attempts_in_flight",
            "Calls open now, those past their deadline among them",
            self.in_flight.clone(),
        );
        r.register("jobs_queued", "Jobs queued now; counted up to 100000", self.queued.clone());
        r.register("attempts_unknown", "Attempts unknown now; counted up to 100000", self.unknown.clone());
        r.register("attempts_unknown_oldest_seconds", "Age of the oldest unknown attempt", self.unknown_oldest.clone());
        r.register("jobs_due_oldest_seconds", "How long the oldest due job has waited", self.due_oldest.clone());
        r.register("store_commits", "Durable commits since the start", self.commits.clone());
        r.register(
            "store_commands",
            "Commands that they carried; divided by commits it is the batch size",
            self.commands.clone(),
        );
        r.register("store_log_bytes", "Bytes written to the write-ahead log since the start", self.log_bytes.clone());
    }

    pub(crate) fn job(&self, outcome: &'static str) {
        self.jobs.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn attempt(&self, provider: &str, outcome: impl Into<String>) {
        self.attempts.get_or_create(&AttemptOutcome { provider: provider.into(), outcome: outcome.into() }).inc();
    }

    /// Whether a provider refuses everything now.
    pub(crate) fn circuit(&self, provider: &str, is_open: bool) {
        let label = AttemptProvider { provider: provider.into() };
        self.circuit_open.get_or_create(&label).set(i64::from(is_open));
    }

    /// Counts what an event made of a job.
    pub(crate) fn verdict(&self, state: JobState, verdict: &Verdict) {
        match verdict {
            Verdict::Won => self.job("succeeded"),
            Verdict::Cancelled => self.job("cancelled"),
            Verdict::Expired | Verdict::Ended(Next::GiveUp(_)) | Verdict::Replanned(Next::GiveUp(_)) => {
                self.job("failed")
            }
            Verdict::Superseded { .. } => {
                self.races_lost.inc();
                self.duplicate_effects.inc();
            }
            Verdict::EndedAfterClose if state == JobState::Succeeded => {
                self.races_lost.inc();
            }
            Verdict::EndedAfterClose
            | Verdict::Ended(Next::Retry(_) | Next::Wait)
            | Verdict::Replanned(Next::Retry(_) | Next::Wait)
            | Verdict::Started
            | Verdict::Recorded
            | Verdict::AlreadySo
            | Verdict::Unknown
            | Verdict::AlreadyWon
            | Verdict::TooLate(_)
            | Verdict::Reopened => {}
        }
    }

    /// Prometheus text, with what is open now.
    pub fn render(
        &self,
        census: Option<Census>,
        work: Work,
        in_flight: usize,
        now: i64,
    ) -> Result<String, std::fmt::Error> {
        self.in_flight.set(in_flight as i64);
        if let Some(census) = census {
            let age = |since: Option<i64>| since.map_or(0, |since| (now - since).max(0) / 1000);
            self.queued.set(census.queued_jobs as i64);
            self.unknown.set(census.unknown_attempts as i64);
            self.unknown_oldest.set(age(census.oldest_unknown_since));
            self.due_oldest.set(age(census.oldest_due));
        }
        self.commits.set(work.commits as i64);
        self.commands.set(work.commands as i64);
        self.log_bytes.set(work.log_bytes as i64);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What an event made of an attempt, as a label: `succeeded`, `failed_<class>`, `unknown_<cause>`,
/// `superseded`, `abandoned`, `cancelled`. Nothing if the attempt is where it was, or goes on.
pub(crate) fn outcome(what: &What, verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Superseded { .. } => Some("superseded".into()),
        Verdict::Won | Verdict::Ended(_) | Verdict::EndedAfterClose | Verdict::Unknown => match what {
            What::Succeeded { .. } => Some("succeeded".into()),
            What::Failed { failure, .. } => Some(format!("failed_{}", failure.class.as_str())),
            What::Silent { cause, .. } => Some(format!("unknown_{}", cause.as_str())),
            What::Abandoned { .. } => Some("abandoned".into()),
            What::CancelConfirmed { .. } => Some("cancelled".into()),
            What::Start(_)
            | What::Running { .. }
            | What::Handle { .. }
            | What::Cancel
            | What::Reopen { .. }
            | What::DeadlinePassed
            | What::Unproved { .. } => None,
        },
        Verdict::Started
        | Verdict::Recorded
        | Verdict::AlreadySo
        | Verdict::AlreadyWon
        | Verdict::TooLate(_)
        | Verdict::Cancelled
        | Verdict::Replanned(_)
        | Verdict::Reopened
        | Verdict::Expired => None,
    }
}
