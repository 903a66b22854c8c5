//! What the demo has shown: every claim with whether it held, and the counts side by side.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment};
use serde::Serialize;

use super::super::screen::{Screen, Tone};

/// Something that onejob promises, and whether it was seen to hold.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Claim {
    pub(super) claim: String,
    pub(super) holds: bool,
    /// What was seen instead, where it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seen: Option<String>,
}

/// What one play has shown.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Shown {
    pub(super) play: &'static str,
    pub(super) clicks: usize,
    /// Lines of the provider's own ledger.
    pub(super) executions: usize,
    /// What usually happens without onejob.
    pub(super) otherwise: &'static str,
    pub(super) claims: Vec<Claim>,
}

/// What the whole demo has shown.
#[derive(Serialize, Debug)]
pub(super) struct Report {
    pub(super) ok: bool,
    pub(super) plays: Vec<Shown>,
}

impl Claim {
    /// The line that shows it.
    pub(super) fn line(&self, screen: &Screen) -> String {
        let (tone, mark) = if self.holds { (Tone::Good, "✓") } else { (Tone::Bad, "✗") };
        let mut line = format!("   {} {}", screen.paint(tone, mark), self.claim);
        if let Some(seen) = &self.seen {
            line.push_str(&screen.paint(Tone::Bad, &format!("\n     seen: {seen}")));
        }
        line
    }
}

impl Report {
    /// All that was shown.
    pub(super) fn new(plays: Vec<Shown>) -> Report {
        let ok = plays.iter().flat_map(|play| &play.claims).all(|claim| claim.holds);
        Report { ok, plays }
    }

    /// The counts side by side, and what to do next.
    pub(super) fn show(&self, took: Duration, screen: &mut Screen) -> std::io::Result<()> {
        let mut table = screen.table(&["", "clicks", "executions", "without onejob"]);
        for (number, play) in (1..).zip(&self.plays) {
            let clicks = Cell::new(play.clicks).set_alignment(CellAlignment::Right);
            let executions = Cell::new(play.executions).set_alignment(CellAlignment::Right);
            let executions = executions.fg(comfy_table::Color::DarkGreen);
            table.add_row([
                Cell::new(format!(" {number}  {}", play.play)),
                clicks,
                executions,
                Cell::new(play.otherwise),
            ]);
        }
        screen.print_table(&table)?;
        screen.line("")?;
        for line in [
            " * Measured: one request, a provider that answers after 4 s, a timeout of 1 s.",
            "   LiteLLM with one fallback 4 executions, the bare OpenAI SDK 3, Portkey 2.",
        ] {
            screen.line(screen.paint(Tone::Faint, line))?;
        }
        screen.line("")?;
        let claims: Vec<&Claim> = self.plays.iter().flat_map(|play| &play.claims).collect();
        let held = claims.iter().filter(|claim| claim.holds).count();
        let (tone, mark) = if self.ok { (Tone::Good, "✓") } else { (Tone::Bad, "✗") };
        screen.line(format!(
            " {}",
            screen
                .paint(tone, &format!("{mark} {held} of {} claims held, in {:.0} s", claims.len(), took.as_secs_f64()))
        ))?;
        screen.line("")?;
        for line in [
            " next  README.md, “Quick start”: your own task in ten lines of onejob.toml",
            "       onejob serve           serve it",
            "       onejob submit --help   the first job",
        ] {
            screen.line(line)?;
        }
        Ok(())
    }
}
