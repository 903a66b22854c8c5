//! `onejob demo`: the newcomer's first sight. A real server, a provider that misbehaves, and five
//! plays over real HTTP, each of which checks what it claims.
//!
//! The server is `onejob serve` in a process of its own, on a free loopback port and a file in a
//! temporary folder: only so can a play kill it. The provider lives in this process and keeps its
//! own ledger, so that what is counted does not come from what is shown to be right.

mod provider;
mod node;
mod scene;
mod report;
mod stage;
mod plays;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use self::node::Node;
use self::provider::Provider;
use self::report::Report;
use self::stage::Show;
use super::Stop;
use super::exit::{self, Exit};
use super::screen::{Screen, Tone};
use super::timeline::UNSEEN;

const EXAMPLES: &str = "\
Examples:
  onejob demo
  onejob demo --plain            lines only, nothing drawn in place
  onejob demo --fast --json      for programs: what was claimed, and whether it held
";

/// See it at work: five ways to do work twice, each done once. No network, nothing to install
///
/// Takes about twenty seconds. Starts a server of its own on this machine and a provider that misbehaves on purpose,
/// and counts in that provider's own ledger. Exits 1 if any of its claims did not hold.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct DemoArgs {
    /// Print lines only, draw nothing in place (so it is anyway where the output is no terminal)
    #[arg(long)]
    plain: bool,
    /// A quarter of the time
    #[arg(long)]
    fast: bool,
    /// Print the report as JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Be the server of a demo that runs elsewhere
    #[arg(long, hide = true, value_name = "FILE")]
    node: Option<PathBuf>,
}

impl DemoArgs {
    /// Where this process is the demo's server and not the demo.
    pub(crate) fn node(&self) -> Option<&Path> {
        self.node.as_deref()
    }
}

/// Serves for a demo in another process.
pub(crate) fn serve(config: &Path) -> ExitCode {
    node::serve_until_orphaned(config)
}

/// Runs the verb.
pub(crate) fn run(args: &DemoArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let begun = Instant::now();
    let second = if args.fast { Duration::from_millis(250) } else { Duration::from_secs(1) };
    let show = Show { live: !args.plain && screen.is_live(scene::COLUMNS), quiet: args.json, second };
    let provider = Provider::start()
        .map_err(|error| Stop::told(Exit::JobNotDone, format!("the demo cannot run: no provider: {error}")))?;
    let mut node = Node::start(&provider, second)?;
    if !show.quiet {
        introduce(&node, screen)?;
    }
    let mut plays = Vec::new();
    for play in plays::ALL {
        plays.push(play((&mut node, &provider, screen), show)?);
    }
    let report = Report::new(plays);
    if show.quiet {
        let json = serde_json::to_vec(&report).map_err(|error| Stop::told(Exit::JobNotDone, error.to_string()))?;
        screen.raw(&json)?;
    } else {
        report.show(begun.elapsed(), screen)?;
    }
    Ok(if report.ok { Exit::Good } else { Exit::JobNotDone })
}

fn introduce(node: &Node, screen: &mut Screen) -> Result<(), Stop> {
    screen.line("")?;
    screen.line(screen.paint(Tone::Strong, " onejob: one click, one job, many attempts, one winner"))?;
    let pid = node.pid().unwrap_or_default();
    let mut row = |name: &str, text: &str| {
        let name = screen.paint(Tone::Faint, &format!(" {name:<9}"));
        screen.line(format!("{name} {text}"))
    };
    row("server", &format!("onejob serve, process {pid}, {}, SQLite in a file", node.url))?;
    row("provider", "slow on purpose; what it is made to do goes into its own ledger")?;
    row("", "nothing leaves this machine")?;
    let legend =
        [("starting", "─ starting"), ("running", "━ running"), ("unknown", "╍ unknown"), ("succeeded", "● won")];
    let legend = legend.iter().chain(&[("superseded", "○ lost"), (UNSEEN, "┈ no server")]);
    let legend: Vec<String> = legend.map(|(state, text)| screen.paint(Tone::of_state(state), text)).collect();
    let name = screen.paint(Tone::Faint, &format!(" {:<9}", "lines"));
    screen.line(format!("{name} {}", legend.join("   ")))?;
    screen.line("")?;
    Ok(())
}
