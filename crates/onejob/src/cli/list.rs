//! `onejob list`: jobs, newest first.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use comfy_table::Cell;
use jiff::Timestamp;
use onejob_core::JobState;
use serde::Deserialize;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::job::{JobView, keep_whole, read};
use super::screen::{Screen, ago, safe, short, state_cell};

const EXAMPLES: &str = "\
Examples:
  onejob list
  onejob list --owner user_42 --state unknown
  onejob list --task summarize --state failed --all --json | jq -r '.jobs[].id'
";

/// What a table with a line per job needs.
const WIDE: usize = 110;

/// List jobs, newest first
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct ListArgs {
    /// Of this owner
    #[arg(long)]
    owner: Option<String>,
    /// With this idempotency key
    #[arg(long)]
    key: Option<String>,
    /// Of this task
    #[arg(long)]
    task: Option<String>,
    /// In this state
    #[arg(long, value_parser = PossibleValuesParser::new(JobState::ALL.map(JobState::as_str)))]
    state: Option<String>,
    /// Jobs per page
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: u32,
    /// Where the last page ended
    #[arg(long)]
    cursor: Option<String>,
    /// All pages; with --json one document per page and line
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Deserialize)]
struct Page {
    jobs: Vec<JobView>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &ListArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let limit = args.limit.to_string();
    let mut cursor = args.cursor.clone();
    let mut jobs = Vec::new();
    loop {
        let mut query = vec![("limit", limit.as_str())];
        let filters = [
            ("owner", &args.owner),
            ("idempotency_key", &args.key),
            ("task", &args.task),
            ("state", &args.state),
            ("cursor", &cursor),
        ];
        query.extend(filters.into_iter().filter_map(|(name, value)| value.as_deref().map(|value| (name, value))));
        let answer = client.ask(&["v1", "jobs"], Send::Get(&query), Duration::ZERO)?;
        let page = read::<Page>(&answer)?;
        if args.server.json {
            screen.raw(&answer.body)?;
        } else {
            jobs.extend(page.jobs);
        }
        cursor = page.next_cursor;
        if !args.all || cursor.is_none() {
            break;
        }
    }
    if !args.server.json {
        show(&jobs, screen)?;
        if let Some(cursor) = cursor {
            screen.note(format!("more: add --cursor {}", safe(&cursor)));
        }
    }
    Ok(Exit::Good)
}

fn show(jobs: &[JobView], screen: &mut Screen) -> Result<(), Stop> {
    if jobs.is_empty() {
        screen.note("no jobs match");
        return Ok(());
    }
    let now = Timestamp::now();
    let narrow = screen.is_narrower(WIDE);
    let header: &[&str] = if narrow {
        &["job\nowner  key", "state", "task", "created"]
    } else {
        &["job", "state", "task", "owner", "key", "attempts", "created"]
    };
    let mut table = screen.table(header);
    for job in jobs {
        let (owner, key) = (short(&job.owner, 24), short(&job.idempotency_key, 24));
        let task = Cell::new(short(job.task.as_deref().unwrap_or("-"), 24));
        let (state, created) = (state_cell(&job.state), Cell::new(ago(&job.created_at, now)));
        if narrow {
            table.add_row([Cell::new(format!("{}\n{owner}  {key}", safe(&job.id))), state, task, created]);
        } else {
            let attempts = Cell::new(job.attempts.len());
            table.add_row([Cell::new(safe(&job.id)), state, task, Cell::new(owner), Cell::new(key), attempts, created]);
        }
    }
    keep_whole(&mut table, 0);
    screen.print_table(&table)?;
    Ok(())
}
