//! `onejob unknowns`: the attempts that wait for evidence.

use std::time::Duration;

use clap::Args;
use comfy_table::Cell;
use jiff::Timestamp;
use serde::Deserialize;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::job::{AttemptView, cause_words, keep_whole, read};
use super::screen::{Screen, Tone, safe, short, when};

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
    let mut table = screen.table(&["attempt, job", "at", "why", "since", "task", "owner"]);
    for attempt in attempts {
        table.add_row([
            Cell::new(format!("{}\n{}", safe(&attempt.id), safe(attempt.job_id.as_deref().unwrap_or_default()))),
            Cell::new(short(&attempt.provider, 24)),
            Cell::new(attempt.cause.as_deref().map(cause_words).unwrap_or_default()),
            Cell::new(when(attempt.since(), now)),
            Cell::new(short(attempt.task.as_deref().unwrap_or("-"), 24)),
            Cell::new(short(attempt.owner.as_deref().unwrap_or("-"), 24)),
        ]);
    }
    keep_whole(&mut table, 0);
    screen.print_table(&table)?;
    Ok(())
}

fn how_it_ends(attempt: &str, screen: &mut Screen) -> Result<(), Stop> {
    let attempt = safe(attempt);
    screen.line("")?;
    screen.line("Each of these may have done its work at the provider, or may yet. Nothing else starts")?;
    screen.line("under its job until evidence comes. A late answer ends it by itself; otherwise look for")?;
    screen.line("the attempt's id at the provider, then say what you found:")?;
    screen.line("")?;
    for (options, meaning) in [
        ("--outcome succeeded --result JSON", "it was done: this is the job's result"),
        ("--outcome failed", "it was not done: the job may try again"),
        ("--outcome abandoned", "nobody will know: go on, it may be done twice"),
    ] {
        let meaning = screen.paint(Tone::Faint, &format!("# {meaning}"));
        screen.line(format!("  onejob resolve {attempt} \\"))?;
        screen.line(format!("    {:<52}  {meaning}", format!("{options} --reason '…'")))?;
    }
    Ok(())
}
