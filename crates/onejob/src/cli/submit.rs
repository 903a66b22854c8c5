//! `onejob submit`: makes a job, or finds the one that has its key.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Stop;
use super::client::{Answer, Client, NoAnswer, Send, ServerArgs};
use super::exit::{self, Exit};
use super::input;
use super::job::{self, JobView};
use super::screen::{Screen, Tone};

const EXAMPLES: &str = "\
Examples:
  onejob submit --task summarize --owner user_42 --key click-8f3a --input '{\"text\": \"…\"}'
  onejob submit --task summarize --owner user_42 --key click-8f3a --input @note.json --wait 30
  jq -n '{text: \"…\"}' | onejob submit --task summarize --owner user_42 --new-key --input -
";

/// The longest pause before a post is repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause before the first repetition; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Make a job, or find the one that has this key
///
/// One key is one wish: repeat the command with the same key as often as you like, the work is started once. If the
/// server cannot be reached or answers 503, the same post with the same key is sent again, a few times.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct SubmitArgs {
    /// What is to be done: a task of the server's configuration
    #[arg(long)]
    task: String,
    /// Who wants it: a user, never a session
    #[arg(long)]
    owner: String,
    /// The owner's name for this one wish (idempotency key), the same at every retry
    #[arg(long, conflicts_with = "new_key")]
    key: Option<String>,
    /// Make a new key and print it before anything is sent
    #[arg(long)]
    new_key: bool,
    /// The input: a JSON text, @FILE, or - for standard input; sent as it is written
    #[arg(long, value_name = "JSON")]
    input: String,
    /// Only this provider may do it (part of the intent)
    #[arg(long, value_name = "PROVIDER", alias = "provider")]
    pin: Option<String>,
    /// Your own notes on the job: a JSON object, @FILE or -
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// Higher is sooner, -100 to 100
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// No attempt before this moment: 2026-01-31T09:30:00Z, or from now: 10m
    #[arg(long, value_parser = input::moment, value_name = "WHEN")]
    run_at: Option<String>,
    /// No attempt starts after this moment
    #[arg(long, value_parser = input::moment, value_name = "WHEN")]
    deadline: Option<String>,
    /// Wait so long for the end: seconds, or 30s, 2m
    #[arg(long, value_parser = input::length, value_name = "TIME")]
    wait: Option<Duration>,
    /// How often the post is sent at most when the server is away
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    posts: u32,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// The body of the post. What was not said is left out, so that the server's defaults stand.
#[derive(Serialize)]
struct Envelope<'a> {
    owner: &'a str,
    task: &'a str,
    input: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<&'a str>,
}

/// Runs the verb.
pub(crate) fn run(args: &SubmitArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let key = key(args, screen)?;
    let input = input::json("--input", &args.input)?;
    let metadata = args.metadata.as_deref().map(|text| input::json("--metadata", text)).transpose()?;
    let envelope = Envelope {
        owner: &args.owner,
        task: &args.task,
        input: &input,
        provider: args.pin.as_deref(),
        metadata: metadata.as_deref(),
        priority: args.priority,
        run_at: args.run_at.as_deref(),
        deadline: args.deadline.as_deref(),
    };
    let body = serde_json::to_string(&envelope).map_err(|error| Stop::told(Exit::Usage, error.to_string()))?;
    let end = args.wait.map(|wait| Instant::now() + wait);
    let mut answer = post(&client, &key, &body, args.posts, screen)?;
    if !args.server.json {
        let found = "found: the key and the intent are known, nothing was started";
        screen.note(if answer.replayed { found } else { "made a new job" });
    }
    if let Some(end) = end {
        answer = job::settle(&client, &JobView::of(&answer)?.id, end)?;
    }
    job::present(&answer, args.server.json, args.wait.is_some(), screen)
}

/// The key as it was given, or a new one that is printed before anything is sent. Never a silent
/// one: whoever repeats the command must be able to repeat the key.
fn key(args: &SubmitArgs, screen: &mut Screen) -> Result<String, Stop> {
    let Some(key) = &args.key else {
        if !args.new_key {
            return Err(Stop::Told {
                exit: Exit::Usage,
                message: "a submit needs --key: your name for this one wish.\nIt makes a retry find the first job \
                          instead of starting the work again, so it must be the same at every try and new for every \
                          new wish: a form's id, a message's id, a click's id."
                    .to_owned(),
                next: Some("--key NAME; or --new-key, which prints a fresh one for you to repeat.".to_owned()),
            });
        }
        let key = uuid::Uuid::now_v7().to_string();
        screen.notice(Tone::Strong, "key:", format!("{key}   (repeat this command with --key {key})"));
        return Ok(key);
    };
    // What HTTP would trim or cannot carry must not reach it; the rest is the server's to judge.
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = "--key: expected 1 to 255 visible ASCII characters, without spaces";
        return Err(Stop::told(Exit::Usage, message.to_owned()));
    }
    Ok(key.clone())
}

/// Posts, and posts again with the same key while the server is away: that is what the key is for.
fn post(client: &Client, key: &str, body: &str, posts: u32, screen: &mut Screen) -> Result<Answer, Stop> {
    let mut pause = FIRST_PAUSE;
    for post in 1.. {
        let sent = client.call(&["v1", "jobs"], Send::Json(body, &[("idempotency-key", key)]), Duration::ZERO);
        let (why, delay) = match sent {
            Ok(answer) if answer.status == 503 && post < posts => {
                let asked = answer.retry_after.map(Duration::from_secs).unwrap_or_default();
                ("the server says: not now (503)".to_owned(), asked.max(pause))
            }
            Ok(answer) => return answer.or_refused(),
            Err(NoAnswer(why)) if post < posts => (format!("no answer from {}: {why}", client.address()), pause),
            Err(NoAnswer(why)) => return Err(gave_up(client, &why, post)),
        };
        let delay = delay.min(LONGEST_PAUSE);
        let next = post + 1;
        let text = format!("{why}; post {next} of {posts} with the same key in {:.1} s", delay.as_secs_f64());
        screen.notice(Tone::Doubt, "again:", text);
        std::thread::sleep(delay);
        pause *= 2;
    }
    unreachable!("the last post returns")
}

fn gave_up(client: &Client, why: &str, posts: u32) -> Stop {
    Stop::Told {
        exit: Exit::Unavailable,
        message: format!("no answer from {} to {posts} posts: {why}", client.address()),
        next: Some(
            "whether the job exists is not known. Run the same command again, with the same key: that never starts the \
             work twice."
                .to_owned(),
        ),
    }
}
