//! `onejob retry`: reopens a failed job, or starts one attempt by hand at a named provider.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::Stop;
use super::client::{Client, Send, ServerArgs};
use super::exit::{self, Exit};
use super::job::{AttemptView, JobView, read};
use super::screen::Screen;

const EXAMPLES: &str = "\
Examples:
  onejob retry job_01k8…                             reopen a failed job; the task says where it goes
  onejob retry job_01k8… --provider backup           one attempt there, by hand
  onejob retry job_01k8… --provider backup --force   also if that provider has proved nothing
";

/// Try again under the same job: reopen a failed one, or start an attempt by hand
///
/// Without --provider a failed job is opened again and its task decides where the next attempt goes. With --provider
/// one attempt is started there by hand. Nothing starts while an attempt is unknown, and for tasks with exclusive
/// effects (the default) nothing while one is running; --force does not change that.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct RetryArgs {
    /// The job's id
    job: String,
    /// Start one attempt by hand at this provider
    #[arg(long)]
    provider: Option<String>,
    /// Also at a provider without a valid certificate for this task
    #[arg(long, requires = "provider")]
    force: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Serialize)]
struct Start<'a> {
    provider: &'a str,
    force: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &RetryArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let Some(provider) = &args.provider else {
        let answer = client.ask(&["v1", "jobs", &args.job, "retry"], Send::Empty, Duration::ZERO)?;
        return show(&client, args, &answer.body, None, screen);
    };
    let body = serde_json::to_string(&Start { provider, force: args.force });
    let body = body.map_err(|error| Stop::told(Exit::Usage, error.to_string()))?;
    let answer = client.ask(&["v1", "jobs", &args.job, "attempts"], Send::Json(&body, &[]), Duration::ZERO)?;
    let attempt = read::<AttemptView>(&answer)?;
    show(&client, args, &answer.body, Some(&attempt), screen)
}

/// Accepted is good, whatever the job's state is by now: how it ends is for `watch` to tell.
fn show(
    client: &Client,
    args: &RetryArgs,
    body: &[u8],
    attempt: Option<&AttemptView>,
    screen: &mut Screen,
) -> Result<Exit, Stop> {
    if args.server.json {
        screen.raw(body)?;
        return Ok(Exit::Good);
    }
    screen.note(match attempt {
        Some(attempt) => format!("started attempt {} ({})", attempt.number, attempt.id),
        None => "reopened; its next attempt goes where the task says".to_owned(),
    });
    let answer = client.ask(&["v1", "jobs", &args.job], Send::Get(&[]), Duration::ZERO)?;
    JobView::of(&answer)?.show(screen)?;
    Ok(Exit::Good)
}
