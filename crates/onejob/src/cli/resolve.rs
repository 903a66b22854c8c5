//! `onejob resolve`: an operator's word on an attempt of which nobody knows what became.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::input;
use super::job::JobView;
use super::screen::Screen;

const EXAMPLES: &str = "\
Examples:
  onejob resolve att_01k8… --outcome failed --reason 'not in the provider’s log'
  onejob resolve att_01k8… --outcome succeeded --result '{\"url\": \"…\"}' --reason 'found it in their console'
  onejob resolve att_01k8… --outcome abandoned --reason 'their logs are gone; the user accepts a second try'
";

/// Say what became of an unknown attempt
///
/// succeeded: the work was done, and --result becomes the job's result, if its slot is still free. failed: it certainly
/// was not done; the job goes on to its next attempt. abandoned: nobody will ever know; the job goes on all the same,
/// at the risk of doing the work twice.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct ResolveArgs {
    /// The attempt's id, as `onejob unknowns` lists it
    attempt: String,
    /// What became of it
    #[arg(long, value_enum)]
    outcome: Outcome,
    /// How you know; kept with the attempt
    #[arg(long)]
    reason: String,
    /// What it brought: a JSON text, @FILE or -
    #[arg(long, value_name = "JSON", required_if_eq("outcome", "succeeded"))]
    result: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Clone, Copy, ValueEnum, Serialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// It was done
    Succeeded,
    /// It certainly was not done
    Failed,
    /// Nobody will ever know
    Abandoned,
}

#[derive(Serialize)]
struct Word<'a> {
    outcome: Outcome,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

/// Runs the verb.
pub(crate) fn run(args: &ResolveArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    if args.result.is_some() && args.outcome != Outcome::Succeeded {
        return Err(Stop::told(Exit::Usage, "--result goes with --outcome succeeded only".to_owned()));
    }
    let result = args.result.as_deref().map(|text| input::json("--result", text)).transpose()?;
    let word = Word { outcome: args.outcome, reason: &args.reason, result: result.as_deref() };
    let body = serde_json::to_string(&word).map_err(|error| Stop::told(Exit::Usage, error.to_string()))?;
    let path = ["v1", "attempts", &args.attempt, "resolve"];
    let answer = client.ask(&path, Send::Json(&body, &[]), Duration::ZERO)?;
    if args.server.json {
        screen.raw(&answer.body)?;
    } else {
        JobView::of(&answer)?.show(screen)?;
    }
    Ok(Exit::Good)
}
