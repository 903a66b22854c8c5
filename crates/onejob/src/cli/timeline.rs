//! Timelines: one line per attempt that grows while the attempt lives.

use std::time::Duration;

use super::screen::Tone;

/// What was seen of one attempt: its states, each with the moment it was first seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Track {
    changes: Vec<(Duration, String)>,
}

/// The state of an attempt while nobody can be asked about it.
pub(crate) const UNSEEN: &str = "unseen";

/// A stretch of a line in one tone.
pub(crate) type Piece = (Tone, String);

impl Track {
    /// An attempt that was first seen at `at`.
    pub(crate) fn new(at: Duration, state: &str) -> Track {
        Track { changes: vec![(at, state.to_owned())] }
    }

    /// Notes its state at `at`, if it is another one. Gives whether it is.
    pub(crate) fn see(&mut self, at: Duration, state: &str) -> bool {
        let is_new = self.state() != state;
        if is_new {
            self.changes.push((at, state.to_owned()));
        }
        is_new
    }

    /// Its last state.
    pub(crate) fn state(&self) -> &str {
        self.changes.last().map_or("", |(_, state)| state)
    }

    /// When it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Duration> {
        self.changes.last().filter(|(_, state)| stroke(state).is_none()).map(|(at, _)| *at)
    }

    /// The line, `cells` wide, where the whole width stands for `horizon`.
    pub(crate) fn draw(&self, now: Duration, horizon: Duration, cells: usize) -> Vec<Piece> {
        let cell = |at: Duration| cell_of(at, horizon, cells);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut column = 0;
        for (i, (at, state)) in self.changes.iter().enumerate() {
            let from = cell(*at).max(column);
            push(&mut pieces, Tone::Faint, ' ', from - column);
            column = from;
            match stroke(state) {
                Some(stroke) => {
                    let until = self.changes.get(i + 1).map_or(now, |(next, _)| *next);
                    let to = cell(until).max(column);
                    push(&mut pieces, Tone::of_state(state), stroke, to - column);
                    column = to;
                    if i + 1 == self.changes.len() && column < cells {
                        push(&mut pieces, Tone::of_state(state), '▸', 1);
                        column += 1;
                    }
                }
                None => {
                    push(&mut pieces, Tone::of_state(state), mark(state), 1);
                    column += 1;
                }
            }
        }
        push(&mut pieces, Tone::Faint, ' ', cells.saturating_sub(column));
        pieces
    }
}

/// The column of a moment; the last one is kept for an end's mark.
pub(crate) fn cell_of(at: Duration, horizon: Duration, cells: usize) -> usize {
    let share = at.as_secs_f64() / horizon.as_secs_f64().max(0.001);
    ((share * cells as f64) as usize).min(cells.saturating_sub(1))
}

fn push(pieces: &mut Vec<Piece>, tone: Tone, c: char, times: usize) {
    if times > 0 {
        pieces.push((tone, std::iter::repeat_n(c, times).collect()));
    }
}

/// How an open state is drawn; `None` for an end.
fn stroke(state: &str) -> Option<char> {
    match state {
        "starting" => Some('─'),
        "running" => Some('━'),
        "unknown" => Some('╍'),
        UNSEEN => Some('┈'),
        _ => None,
    }
}

/// The mark of an end.
pub(crate) fn mark(state: &str) -> char {
    match state {
        "succeeded" => '●',
        "failed" => '✗',
        "superseded" => '○',
        "cancelled" => '⊘',
        "abandoned" => '⊘',
        _ => '?',
    }
}
