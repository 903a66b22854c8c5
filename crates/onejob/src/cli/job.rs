//! A job as the API tells it, and as people read it.

use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Stop;
use super::client::{Answer, Client, Send};
use super::exit::Exit;
use super::screen::{Screen, Tone, ago, safe, short, span, when};

/// The longest single hold that is asked of a server. A longer wait is several of them, so that
/// proxies in between see a living connection.
const HOLD: Duration = Duration::from_secs(20);
/// The pause before asking again when the server did not answer during a wait.
const PAUSE: Duration = Duration::from_millis(500);

/// What is shown of a job. Members that this build does not know are left alone, and so are states.
#[derive(Deserialize, Debug, Clone)]
pub(crate) struct JobView {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) idempotency_key: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) task: Option<String>,
    #[serde(default)]
    pub(crate) provider: Option<String>,
    #[serde(default)]
    pub(crate) priority: i64,
    #[serde(default)]
    pub(crate) run_at: Option<String>,
    #[serde(default)]
    pub(crate) deadline: Option<String>,
    #[serde(default)]
    pub(crate) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) error: Option<FailureView>,
    #[serde(default)]
    pub(crate) duplicates: u64,
    #[serde(default)]
    pub(crate) safe_new_key: bool,
    #[serde(default)]
    pub(crate) created_at: String,
    #[serde(default)]
    pub(crate) updated_at: String,
    #[serde(default)]
    pub(crate) attempts: Vec<AttemptView>,
}

/// What is shown of an attempt; the last three members are there in lists only.
#[derive(Deserialize, Debug, Clone)]
pub(crate) struct AttemptView {
    pub(crate) id: String,
    pub(crate) number: u32,
    pub(crate) provider: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) cause: Option<String>,
    #[serde(default)]
    pub(crate) started_at: String,
    #[serde(default)]
    pub(crate) unknown_since: Option<String>,
    #[serde(default)]
    pub(crate) finished_at: Option<String>,
    #[serde(default)]
    pub(crate) failure: Option<FailureView>,
    #[serde(default)]
    pub(crate) resolution: Option<ResolutionView>,
    #[serde(default)]
    pub(crate) job_id: Option<String>,
    #[serde(default)]
    pub(crate) owner: Option<String>,
    #[serde(default)]
    pub(crate) task: Option<String>,
}

/// Why a job or an attempt failed.
#[derive(Deserialize, Debug, Clone)]
pub(crate) struct FailureView {
    pub(crate) class: String,
    #[serde(default)]
    pub(crate) status: Option<u16>,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) failover: Option<String>,
}

/// What ended an unknown attempt.
#[derive(Deserialize, Debug, Clone)]
pub(crate) struct ResolutionView {
    pub(crate) by: String,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

impl JobView {
    /// Reads a job from an answer.
    ///
    /// # Errors
    ///
    /// [`Exit::Unavailable`] if it holds none: that is no onejob server.
    pub(crate) fn of(answer: &Answer) -> Result<JobView, Stop> {
        read(answer)
    }

    /// Succeeded, failed or cancelled.
    pub(crate) fn is_terminal(&self) -> bool {
        ["succeeded", "failed", "cancelled"].contains(&self.state.as_str())
    }

    /// Shows all of it.
    pub(crate) fn show(&self, screen: &mut Screen) -> io::Result<()> {
        let now = Timestamp::now();
        let state = screen.paint(Tone::of_state(&self.state), &safe(&self.state));
        screen.line(format!("{}  {state}", screen.paint(Tone::Strong, &safe(&self.id))))?;
        for (name, value) in self.facts(now) {
            screen.line(format!("  {}  {value}", screen.paint(Tone::Faint, &format!("{name:<9}"))))?;
        }
        if !self.attempts.is_empty() {
            screen.line("")?;
            show_attempts(&self.attempts, now, screen)?;
        }
        if let Some(result) = &self.result {
            screen.line("")?;
            screen.line(safe(result.get()))?;
        }
        self.show_next(screen)
    }

    fn facts(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("task", self.task.as_deref().map_or_else(|| "not known: cancelled before it was posted".to_owned(), safe)),
            ("owner", safe(&self.owner)),
            ("key", safe(&self.idempotency_key)),
        ];
        let mut also = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
        also("pinned to", self.provider.as_deref().map(safe));
        also("priority", (self.priority != 0).then(|| self.priority.to_string()));
        also("created", Some(when(&self.created_at, now)));
        also("updated", (self.updated_at != self.created_at).then(|| when(&self.updated_at, now)));
        also("run at", self.run_at.as_deref().map(|at| when(at, now)));
        also("deadline", self.deadline.as_deref().map(|at| when(at, now)));
        also("clicks", (self.duplicates > 0).then(|| format!("{} (one job)", self.duplicates + 1)));
        also("error", self.error.as_ref().map(FailureView::sentence));
        facts
    }

    /// What the reader of a job that did not succeed can do.
    fn show_next(&self, screen: &mut Screen) -> io::Result<()> {
        let next = match self.state.as_str() {
            "unknown" => {
                let attempt = self.attempts.iter().find(|a| a.state == "unknown").map_or("ATTEMPT", |a| a.id.as_str());
                (endings(), resolve_line(attempt))
            }
            "failed" if self.safe_new_key => {
                ("nothing was done anywhere. To try again under the same job:", format!("onejob retry {}", self.id))
            }
            "failed" => (
                "an attempt may have had effects: look before you try again, under the same job:",
                format!("onejob retry {}", self.id),
            ),
            _ => return Ok(()),
        };
        screen.line("")?;
        screen.advise("next:", next.0, &[safe(&next.1)])
    }
}

impl FailureView {
    /// `refused, status 429: too many requests`.
    pub(crate) fn sentence(&self) -> String {
        let mut text = safe(&self.class);
        if let Some(status) = self.status {
            text.push_str(&format!(", status {status}"));
        }
        if !self.message.is_empty() {
            text.push_str(&format!(": {}", safe(&self.message)));
        }
        if self.failover.as_deref() == Some("no_verified_provider") {
            text.push_str(" (no other provider has a valid certificate)");
        }
        text
    }
}

impl AttemptView {
    /// What stands behind its state.
    pub(crate) fn remark(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.cause.as_deref().map(cause_words));
        parts.extend(self.failure.as_ref().map(FailureView::sentence));
        if let Some(resolution) = &self.resolution {
            let by = format!("by {}", safe(&resolution.by).replace('_', " "));
            // What an operator says of a failure is the failure's message too.
            let told = self.failure.as_ref().map(|failure| failure.message.as_str());
            let reason = resolution.reason.as_deref().filter(|reason| told != Some(reason));
            parts.push(reason.map_or(by.clone(), |reason| format!("{by}: {}", safe(reason))));
        }
        parts.join("; ")
    }

    /// Since when it is unknown, or the earliest moment known of it.
    pub(crate) fn since(&self) -> &str {
        self.unknown_since.as_deref().unwrap_or(&self.started_at)
    }

    fn took(&self, now: Timestamp) -> String {
        let Ok(start) = self.started_at.parse::<Timestamp>() else { return String::new() };
        let end = self.finished_at.as_deref().and_then(|at| at.parse().ok()).unwrap_or(now);
        span(end.duration_since(start))
    }
}

/// A cause in words.
fn cause_words(cause: &str) -> String {
    match cause {
        "timeout" => "no answer in time".to_owned(),
        "connection_lost" => "connection lost".to_owned(),
        "cut_short" => "answer cut short".to_owned(),
        "status" => "answer says nothing".to_owned(),
        "node_died" => "node died".to_owned(),
        "worker_died" => "worker died".to_owned(),
        other => safe(other),
    }
}

/// How an unknown attempt ends.
pub(crate) fn endings() -> &'static str {
    "nothing else starts until evidence comes. A late answer ends it by itself; otherwise look at the provider, then:"
}

/// The command that ends an unknown attempt.
pub(crate) fn resolve_line(attempt: &str) -> String {
    format!("onejob resolve {attempt} --outcome … --reason …")
}

/// A line per attempt, and one under it for what stands behind its state.
fn show_attempts(attempts: &[AttemptView], now: Timestamp, screen: &mut Screen) -> io::Result<()> {
    let width = |text: fn(&AttemptView) -> &str, least: usize| {
        attempts.iter().map(|attempt| short(text(attempt), 24).chars().count()).max().unwrap_or(0).max(least)
    };
    let (provider, state) = (width(|a| &a.provider, "provider".len()), width(|a| &a.state, "state".len()));
    let header = format!(
        "{:>3}  {:<30}  {:<provider$}  {:<state$}  {:<9}  took",
        "#", "attempt", "provider", "state", "started"
    );
    screen.line(screen.paint(Tone::Faint, &header))?;
    for attempt in attempts {
        let shown = screen.paint(Tone::of_state(&attempt.state), &format!("{:<state$}", short(&attempt.state, 24)));
        screen.line(format!(
            "{:>3}  {:<30}  {:<provider$}  {shown}  {:<9}  {}",
            attempt.number,
            safe(&attempt.id),
            short(&attempt.provider, 24),
            ago(&attempt.started_at, now),
            attempt.took(now)
        ))?;
        let remark = attempt.remark();
        if !remark.is_empty() {
            screen.advise("    ", &remark, &[])?;
        }
    }
    Ok(())
}

/// Never breaks the ids in a column: people copy them.
pub(crate) fn keep_whole(table: &mut comfy_table::Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
    }
}

/// Reads what an answer holds.
///
/// # Errors
///
/// [`Exit::Unavailable`] if it is something else.
pub(crate) fn read<T: serde::de::DeserializeOwned>(answer: &Answer) -> Result<T, Stop> {
    serde_json::from_slice(&answer.body).map_err(|error| Stop::Told {
        exit: Exit::Unavailable,
        message: format!("the server's answer is not what onejob says: {error}"),
        next: Some("check --url (ONEJOB_URL): is that a onejob server, and of this version?".to_owned()),
    })
}

/// Shows one job, and gives the exit that tells its state.
pub(crate) fn present(answer: &Answer, json: bool, waited: bool, screen: &mut Screen) -> Result<Exit, Stop> {
    let job = JobView::of(answer)?;
    if json {
        screen.raw(&answer.body)?;
    } else {
        job.show(screen)?;
    }
    Ok(Exit::of_job(&job.state, waited))
}

/// The id of the job that an owner's key names.
///
/// # Errors
///
/// [`Exit::NotFound`] if there is none.
pub(crate) fn find_by_key(client: &Client, owner: &str, key: &str) -> Result<String, Stop> {
    #[derive(Deserialize)]
    struct Found {
        jobs: Vec<JobView>,
    }
    let query = [("owner", owner), ("idempotency_key", key)];
    let answer = client.ask(&["v1", "jobs"], Send::Get(&query), Duration::ZERO)?;
    match read::<Found>(&answer)?.jobs.into_iter().next() {
        Some(job) => Ok(job.id),
        None => Err(Stop::told(Exit::NotFound, format!("{owner} has no job with the key {key}"))),
    }
}

/// Holds on until a job is terminal or unknown, at most until `end`, and gives its last answer.
///
/// A server that is away for a moment is asked again: reading is harmless.
pub(crate) fn settle(client: &Client, id: &str, end: Instant) -> Result<Answer, Stop> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let hold = left.min(HOLD);
        let asked = Instant::now();
        let wait = format!("{}ms", hold.as_millis());
        match client.call(&["v1", "jobs", id], Send::Get(&[("wait", &wait)]), hold) {
            Ok(answer) if answer.status == 503 && !left.is_zero() => {}
            Ok(answer) => {
                let answer = answer.or_refused()?;
                let job = JobView::of(&answer)?;
                if job.is_terminal() || job.state == "unknown" || left.is_zero() {
                    return Ok(answer);
                }
            }
            Err(no_answer) if left.is_zero() => return Err(client.unreached(&no_answer)),
            Err(_) => {}
        }
        // A server that did not hold its answer is not asked in a tight circle.
        std::thread::sleep(PAUSE.min(hold).saturating_sub(asked.elapsed()));
    }
}
