//! `onejob get`: one job, by its id or by its owner's key.

use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::screen::{Screen, safe, when};
use super::{input, job};

const EXAMPLES: &str = "\
Examples:
  onejob get job_01k8…
  onejob get --owner user_42 --key click-8f3a
  onejob get job_01k8… --wait 30 --json | jq .result
  onejob get job_01k8… --notices
";

/// Which job: its id, or its owner and key.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// The job's id
    #[arg(required_unless_present_all = ["owner", "key"], conflicts_with_all = ["owner", "key"])]
    job: Option<String>,
    /// Instead of the id: who wanted it …
    #[arg(long, requires = "key")]
    pub(crate) owner: Option<String>,
    /// … and the owner's idempotency key
    #[arg(long, requires = "owner")]
    pub(crate) key: Option<String>,
}

impl Which {
    /// The job's id; asks the server where only the key is known.
    pub(crate) fn id(&self, client: &Client) -> Result<String, Stop> {
        match (&self.job, &self.owner, &self.key) {
            (Some(id), ..) => Ok(id.clone()),
            (None, Some(owner), Some(key)) => job::find_by_key(client, owner, key),
            (None, ..) => Err(Stop::told(Exit::Usage, "give a job's id, or --owner and --key".to_owned())),
        }
    }
}

/// Show one job with its attempts and its result
///
/// The exit code tells its state: 0 succeeded (or on its way), 1 failed or cancelled, 3 unknown.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct GetArgs {
    #[command(flatten)]
    which: Which,
    /// Wait so long until it is terminal or unknown: seconds, or 30s, 2m
    #[arg(long, value_parser = input::length, value_name = "TIME")]
    wait: Option<Duration>,
    /// Show what was noted about it instead: duplicates, conflicts, unknowns, races lost, resolutions
    #[arg(long, conflicts_with = "wait")]
    notices: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Deserialize)]
struct Notices {
    notices: Vec<Notice>,
}

#[derive(Deserialize)]
struct Notice {
    at: String,
    kind: String,
    #[serde(default)]
    attempt: Option<String>,
    #[serde(default)]
    detail: Option<Box<RawValue>>,
}

/// Runs the verb.
pub(crate) fn run(args: &GetArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let id = args.which.id(&client)?;
    if args.notices {
        return notices(&client, &id, args.server.json, screen);
    }
    let answer = match args.wait {
        Some(wait) => job::settle(&client, &id, Instant::now() + wait)?,
        None => client.ask(&["v1", "jobs", &id], Send::Get(&[]), Duration::ZERO)?,
    };
    job::present(&answer, args.server.json, args.wait.is_some(), screen)
}

fn notices(client: &Client, id: &str, json: bool, screen: &mut Screen) -> Result<Exit, Stop> {
    let answer = client.ask(&["v1", "jobs", id, "notices"], Send::Get(&[]), Duration::ZERO)?;
    if json {
        screen.raw(&answer.body)?;
        return Ok(Exit::Good);
    }
    let notices = job::read::<Notices>(&answer)?.notices;
    if notices.is_empty() {
        screen.note("nothing was noted");
        return Ok(Exit::Good);
    }
    let now = Timestamp::now();
    for notice in notices {
        let about = notice.attempt.map(|id| format!("  {}", safe(&id))).unwrap_or_default();
        screen.line(format!("{}  {}{about}", when(&notice.at, now), safe(&notice.kind)))?;
        if let Some(detail) = notice.detail {
            screen.line(format!("  {}", safe(detail.get())))?;
        }
    }
    Ok(Exit::Good)
}
