//! What the audience sees of one play: clicks, a line per attempt, the provider's ledger, and what
//! happens, in 80 columns.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::job::{AttemptView, JobView};
use super::super::screen::{Screen, Tone, short};
use super::super::timeline::{Piece, Track, UNSEEN, cell_of};

/// What a terminal needs for it.
pub(super) const COLUMNS: usize = 80;
const LABEL: usize = 12;
const CELLS: usize = 44;

/// One play so far. Moments count from its beginning.
pub(super) struct Scene {
    /// What the whole width of a line stands for, at least.
    horizon: Duration,
    clicks: Vec<Duration>,
    executions: Vec<Duration>,
    attempts: BTreeMap<u32, Line>,
    events: Vec<(Duration, Tone, String)>,
}

struct Line {
    provider: String,
    track: Track,
    status: String,
}

impl Scene {
    /// An empty stage.
    pub(super) fn new(horizon: Duration) -> Scene {
        Scene { horizon, clicks: Vec::new(), executions: Vec::new(), attempts: BTreeMap::new(), events: Vec::new() }
    }

    /// The user clicks.
    pub(super) fn click(&mut self, at: Duration) {
        self.clicks.push(at);
    }

    /// How often the user has clicked.
    pub(super) fn clicks(&self) -> usize {
        self.clicks.len()
    }

    /// The provider's ledger has so many lines by now.
    pub(super) fn count(&mut self, at: Duration, executions: usize) {
        self.executions.resize(executions.max(self.executions.len()), at);
    }

    /// The job as the API tells it by now.
    pub(super) fn see(&mut self, at: Duration, job: &JobView) {
        for attempt in &job.attempts {
            let line = self.attempts.entry(attempt.number).or_insert_with(|| Line {
                provider: attempt.provider.clone(),
                track: Track::new(at, "starting"),
                status: String::new(),
            });
            line.track.see(at, &attempt.state);
            line.status = status(attempt);
        }
    }

    /// The API does not answer: what is open now is out of sight.
    pub(super) fn lose_sight(&mut self, at: Duration) {
        for line in self.attempts.values_mut().filter(|line| line.track.ended().is_none()) {
            line.track.see(at, UNSEEN);
            line.status = "no server".to_owned();
        }
    }

    /// Something to tell.
    pub(super) fn tell(&mut self, at: Duration, tone: Tone, text: &str) {
        self.events.push((at, tone, text.to_owned()));
    }

    /// The lines of the play, as long as it is.
    pub(super) fn timeline(&self, now: Duration, screen: &Screen) -> Vec<String> {
        let horizon = self.horizon.max(now);
        let clicks = marks(&self.clicks, horizon, Tone::Strong, '▼');
        let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let mut lines = vec![row(screen, "clicks", clicks, Tone::Strong, &count(self.clicks.len(), "click"))];
        for (number, line) in &self.attempts {
            let label = format!("{} #{number}", line.provider);
            let tone = Tone::of_state(line.track.state());
            lines.push(row(screen, &label, line.track.draw(now, horizon, CELLS), tone, &line.status));
        }
        let executions = marks(&self.executions, horizon, Tone::Busy, '■');
        lines.push(row(screen, "ledger", executions, Tone::Busy, &count(self.executions.len(), "execution")));
        lines
    }

    /// What has happened, a line each.
    pub(super) fn events(&self, screen: &Screen) -> Vec<String> {
        self.events.iter().map(|event| event_line(event, screen)).collect()
    }

    /// The line of what happened last.
    pub(super) fn last_event(&self, screen: &Screen) -> Option<String> {
        self.events.last().map(|event| event_line(event, screen))
    }
}

fn event_line((at, tone, text): &(Duration, Tone, String), screen: &Screen) -> String {
    let moment = screen.paint(Tone::Faint, &format!("{:>6.1} s", at.as_secs_f64()));
    format!("  {moment}  {}", screen.paint(*tone, &short(text, COLUMNS - 12)))
}

/// The state of an attempt with one word of why.
fn status(attempt: &AttemptView) -> String {
    let why = match (&attempt.resolution, &attempt.cause) {
        (Some(resolution), _) => resolution.by.replace('_', " "),
        (None, Some(cause)) => cause.replace('_', " "),
        (None, None) => return attempt.state.clone(),
    };
    // "late answer" is the longest, and needs the room that the state does not.
    let state = if attempt.state == "succeeded" { "done" } else { &attempt.state };
    format!("{state}: {why}")
}

fn row(screen: &Screen, label: &str, pieces: Vec<Piece>, tone: Tone, status: &str) -> String {
    let label = format!("{:<LABEL$}", short(label, LABEL - 1));
    let line: String = pieces.iter().map(|(tone, text)| screen.paint(*tone, text)).collect();
    let status = short(status, COLUMNS - 3 - LABEL - CELLS - 2);
    format!("   {}{line}  {}", screen.paint(Tone::Faint, &label), screen.paint(tone, &status)).trim_end().to_owned()
}

/// Marks on an empty line; a digit where several fall together.
fn marks(moments: &[Duration], horizon: Duration, tone: Tone, mark: char) -> Vec<Piece> {
    let mut counts = [0_u32; CELLS];
    for moment in moments {
        if let Some(count) = counts.get_mut(cell_of(*moment, horizon, CELLS)) {
            *count += 1;
        }
    }
    let cells = counts.map(|count| match count {
        0 => ' ',
        1 => mark,
        2..=9 => char::from_digit(count, 10).unwrap_or(mark),
        _ => '+',
    });
    vec![(tone, cells.iter().collect())]
}
