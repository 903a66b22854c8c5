//! `onejob contracts`: which providers have proved themselves, until when, and why not.

use std::time::Duration;

use clap::Args;
use comfy_table::{Cell, Color};
use jiff::Timestamp;
use serde::Deserialize;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::job::read;
use super::screen::{Screen, ago, clock, safe, short};

const EXAMPLES: &str = "\
Examples:
  onejob contracts
  onejob contracts summarize backup
  onejob contracts --json | jq -r '.contracts[] | select(.valid | not) | .why_not'
";

/// Show which providers have proved themselves for which tasks, until when, and why not
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct ContractsArgs {
    /// Of this task
    task: Option<String>,
    /// At this provider
    provider: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Deserialize)]
struct Page {
    contracts: Vec<ContractView>,
}

/// What is shown of a contract at a provider.
#[derive(Deserialize, Debug)]
pub(crate) struct ContractView {
    pub(crate) task: String,
    pub(crate) provider: String,
    #[serde(default)]
    primary: bool,
    valid: bool,
    #[serde(default)]
    valid_until: Option<String>,
    #[serde(default)]
    why_not: Option<String>,
    #[serde(default)]
    pub(crate) running: Option<RunningView>,
    #[serde(default)]
    last: Option<LastView>,
}

/// How far a run is.
#[derive(Deserialize, Debug)]
pub(crate) struct RunningView {
    pub(crate) done: Option<u32>,
    pub(crate) total: Option<u32>,
}

#[derive(Deserialize, Debug)]
struct LastView {
    passed: bool,
    ended_at: String,
}

/// The contracts that match.
pub(crate) fn contracts(
    client: &Client,
    task: Option<&str>,
    provider: Option<&str>,
) -> Result<Vec<ContractView>, Stop> {
    let query: Vec<(&str, &str)> =
        [("task", task), ("provider", provider)].into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let answer = client.ask(&["v1", "contracts"], Send::Get(&query), Duration::ZERO)?;
    read::<Page>(&answer).map(|page| page.contracts)
}

/// Runs the verb.
pub(crate) fn run(args: &ContractsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    if args.server.json {
        let filters = [("task", &args.task), ("provider", &args.provider)];
        let query: Vec<(&str, &str)> =
            filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect();
        let answer = client.ask(&["v1", "contracts"], Send::Get(&query), Duration::ZERO)?;
        screen.raw(&answer.body)?;
        return Ok(Exit::Good);
    }
    let all = contracts(&client, args.task.as_deref(), args.provider.as_deref())?;
    if all.is_empty() {
        screen.note("no task has a contract that matches");
        return Ok(Exit::Good);
    }
    let now = Timestamp::now();
    let mut table = screen.table(&["task", "provider", "certificate", "until", "last verified", "why not"]);
    for contract in &all {
        let (word, colour) = match (contract.valid, contract.primary) {
            (true, _) => ("valid", Color::DarkGreen),
            (false, true) => ("none (primary)", Color::Reset),
            (false, false) => ("none", Color::DarkYellow),
        };
        let last = contract.last.as_ref().map_or_else(
            || "-".to_owned(),
            |last| format!("{}, {}", ago(&last.ended_at, now), if last.passed { "passed" } else { "failed" }),
        );
        let why = match &contract.running {
            Some(RunningView { done: Some(done), total: Some(total) }) => format!("running: {done} of {total} calls"),
            Some(RunningView { .. }) => "running at another node".to_owned(),
            None => contract.why_not.as_deref().map_or_else(|| "-".to_owned(), safe),
        };
        table.add_row([
            Cell::new(short(&contract.task, 24)),
            Cell::new(short(&contract.provider, 24)),
            Cell::new(word).fg(colour),
            Cell::new(contract.valid_until.as_deref().map_or_else(|| "-".to_owned(), clock)),
            Cell::new(last),
            Cell::new(why),
        ]);
    }
    screen.print_table(&table)?;
    Ok(Exit::Good)
}
