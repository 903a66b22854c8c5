//! `onejob unknowns`: the attempts that wait for evidence.

use std::time::Duration;

use clap::Args;
use comfy_table::Cell;
use jiff::Timestamp;
use serde::Deserialize;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::job::{AttemptView, keep_whole, read};
use super::screen::{Screen, Tone, ago, clock, safe, short, wrap};

const EXAMPLES: &str = "\
Examples:
  onejob unknowns
  onejob unknowns --provider main
  onejob unknowns > /dev/null || echo 'somebody should look'
";

/// List the attempts of which nobody knows what became, and how each can end
///
/// Exits 3 if there are any, so that a script can raise the alarm, and 0 if there are none.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct UnknownsArgs {
    /// Of jobs of this task
    #[arg(long)]
    task: Option<String>,
    /// At this provider
    #[arg(long)]
    provider: Option<String>,
    /// Attempts per page
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: u32,
    /// Where the last page ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Deserialize)]
struct Page {
    attempts: Vec<AttemptView>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &UnknownsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let limit = args.limit.to_string();
    let mut query = vec![("state", "unknown"), ("limit", limit.as_str())];
    let filters = [("task", &args.task), ("provider", &args.provider), ("cursor", &args.cursor)];
    query.extend(filters.into_iter().filter_map(|(name, value)| value.as_deref().map(|value| (name, value))));
    let answer = client.ask(&["v1", "attempts"], Send::Get(&query), Duration::ZERO)?;
    let page = read::<Page>(&answer)?;
    let exit = if page.attempts.is_empty() { Exit::Good } else { Exit::Unknown };
    if args.server.json {
        screen.raw(&answer.body)?;
        return Ok(exit);
    }
    let Some(first) = page.attempts.first() else {
        screen.line("nothing is unknown")?;
        return Ok(exit);
    };
    show(&page.attempts, screen)?;
    how_it_ends(&first.id, screen)?;
    if let Some(cursor) = page.next_cursor {
        screen.note(format!("more: add --cursor {}", safe(&cursor)));
    }
    Ok(exit)
}

fn show(attempts: &[AttemptView], screen: &mut Screen) -> Result<(), Stop> {
    let now = Timestamp::now();
    let mut table = screen.table(&["attempt\njob", "provider\ntask", "why\nowner", "since"]);
    for attempt in attempts {
        let pair = |first: &str, second: Option<&str>| {
            Cell::new(format!("{}\n{}", short(first, 30), short(second.unwrap_or("-"), 30)))
        };
        let why = safe(attempt.cause.as_deref().unwrap_or("-")).replace('_', " ");
        table.add_row([
            pair(&attempt.id, attempt.job_id.as_deref()),
            pair(&attempt.provider, attempt.task.as_deref()),
            pair(&why, attempt.owner.as_deref()),
            pair(&ago(attempt.since(), now), Some(&clock(attempt.since()))),
        ]);
    }
    keep_whole(&mut table, 0);
    screen.print_table(&table)?;
    Ok(())
}

fn how_it_ends(attempt: &str, screen: &mut Screen) -> Result<(), Stop> {
    let attempt = safe(attempt);
    screen.line("")?;
    for line in wrap(
        "Each of these may have done its work at the provider, or may yet. Nothing else starts under its job until \
         evidence comes. A late answer ends it by itself; otherwise look for the attempt's id at the provider, then say \
         what you found:",
        80,
    ) {
        screen.line(line)?;
    }
    for (meaning, options) in [
        ("it was done, and this is the job's result", "succeeded --result JSON"),
        ("it was not done: the job may try again", "failed"),
        ("nobody will ever know: go on, at the risk of doing it twice", "abandoned"),
    ] {
        screen.line("")?;
        screen.line(format!("  {}", screen.paint(Tone::Faint, &format!("# {meaning}"))))?;
        screen.line(format!("  onejob resolve {attempt} \\"))?;
        screen.line(format!("    --outcome {options} --reason '…'"))?;
    }
    Ok(())
}
