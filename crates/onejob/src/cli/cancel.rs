//! `onejob cancel`: closes a job, or the key of one that has not arrived yet.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::get::Which;
use super::job::JobView;
use super::screen::Screen;

const EXAMPLES: &str = "\
Examples:
  onejob cancel job_01k8…
  onejob cancel --owner user_42 --key click-8f3a
";

/// Close a job: no attempt of it can win any more
///
/// A provider that is at work may finish all the same; what it brings is dropped and noted. Cancelling by key also
/// works before the post arrives: the late post then finds a cancelled job.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Serialize)]
struct ByKey<'a> {
    owner: &'a str,
    idempotency_key: &'a str,
}

/// Runs the verb.
pub(crate) fn run(args: &CancelArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let answer = match (&args.which.owner, &args.which.key) {
        (Some(owner), Some(key)) => {
            // By key in one call: a job looked up first could appear in between.
            let body = serde_json::to_string(&ByKey { owner, idempotency_key: key });
            let body = body.map_err(|error| Stop::told(Exit::Usage, error.to_string()))?;
            client.ask(&["v1", "jobs", "cancel"], Send::Json(&body, &[]), Duration::ZERO)?
        }
        _ => client.ask(&["v1", "jobs", &args.which.id(&client)?, "cancel"], Send::Empty, Duration::ZERO)?,
    };
    if args.server.json {
        screen.raw(&answer.body)?;
        return Ok(Exit::Good);
    }
    let job = JobView::of(&answer)?;
    job.show(screen)?;
    if job.attempts.iter().any(|a| ["starting", "running", "unknown"].contains(&a.state.as_str())) {
        screen.note("an attempt was already sent; what it still brings will be dropped and noted");
    }
    Ok(Exit::Good)
}
