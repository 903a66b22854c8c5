//! The command line: one verb per file. Verbs that speak to a running server know nothing but its
//! HTTP API.

mod exit;
mod screen;
mod input;
mod client;
mod problem;
mod job;
mod timeline;

mod serve;
mod check;
mod submit;
mod get;
mod watch;
mod list;
mod cancel;
mod retry;
mod unknowns;
mod resolve;
mod contracts;
mod verify;
mod demo;
mod bench;
mod migrate;
mod doctor;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use exit::Exit;
use problem::Problem;
use screen::{Screen, Tone};

const EXAMPLES: &str = "\
Examples:
  onejob demo                                  see it at work: nothing to install, no network
  onejob check                                 is onejob.toml right?
  onejob doctor                                is all well with the store, the nodes and the providers' hosts?
  onejob serve                                 serve what onejob.toml says
  onejob submit --task summarize --owner user_42 --key click-8f3a --input '{\"text\": \"…\"}' --wait 30
  onejob unknowns                              what waits for evidence
  onejob verify summarize backup               has that provider proved that it honours the contract?
";

/// One durable job per intent, many attempts, one winner.
///
/// Between a backend and the slow, paid or side-effecting providers that it calls: silence is unknown and not a
/// failure, and nothing is started twice.
#[derive(Parser, Debug)]
#[command(name = "onejob", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Demo(demo::DemoArgs),
    Serve(ServeArgs),
    Check(CheckArgs),
    Submit(submit::SubmitArgs),
    Get(get::GetArgs),
    Watch(watch::WatchArgs),
    List(list::ListArgs),
    Cancel(cancel::CancelArgs),
    Retry(retry::RetryArgs),
    Unknowns(unknowns::UnknownsArgs),
    Resolve(resolve::ResolveArgs),
    Verify(verify::VerifyArgs),
    Contracts(contracts::ContractsArgs),
    Bench(bench::BenchArgs),
    Migrate(migrate::MigrateArgs),
    Doctor(doctor::DoctorArgs),
}

/// Serve what a configuration says, until SIGTERM or Ctrl-C
///
/// On a signal it takes no new work, lets what is in flight finish for a while, and leaves the rest unknown.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  onejob serve\n  onejob serve --config /etc/onejob.toml\n")]
struct ServeArgs {
    /// The configuration file; paths in it are relative to it
    #[arg(long, default_value = "onejob.toml", value_name = "FILE")]
    config: PathBuf,
    /// Write the log as JSON, one object per line; ONEJOB_LOG chooses what is logged (info, onejob=debug)
    #[arg(long)]
    log_json: bool,
}

/// Check a configuration: every error with its place, and how an unknown attempt of each task can end
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  onejob check\n  onejob check --config /etc/onejob.toml --json | jq .errors\n")]
struct CheckArgs {
    /// The configuration file; paths in it are relative to it
    #[arg(long, default_value = "onejob.toml", value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Why a verb ended early.
#[derive(Debug)]
enum Stop {
    /// Our own output could not be written.
    Output(io::Error),
    /// The server refused.
    Refused(Problem),
    /// Something to tell on standard error.
    Told {
        /// How the command ends.
        exit: Exit,
        /// What is wrong.
        message: String,
        /// What to do about it.
        next: Option<String>,
    },
}

impl Stop {
    fn told(exit: Exit, message: String) -> Stop {
        Stop::Told { exit, message, next: None }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `print` fails only where nobody reads any more.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Exit::Usage.code() } else { Exit::Good.code() });
        }
    };
    match &cli.verb {
        Verb::Serve(args) => serve::run(&args.config, args.log_json),
        Verb::Check(args) => check::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::Migrate(args) => migrate::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Demo(args) if args.node().is_some() => args.node().map_or(ExitCode::FAILURE, demo::serve),
        Verb::Demo(_)
        | Verb::Submit(_)
        | Verb::Get(_)
        | Verb::Watch(_)
        | Verb::List(_)
        | Verb::Cancel(_)
        | Verb::Retry(_)
        | Verb::Unknowns(_)
        | Verb::Resolve(_)
        | Verb::Verify(_)
        | Verb::Contracts(_) => ExitCode::from(run(&cli.verb, &mut Screen::of_process()).code()),
    }
}

/// Runs a verb that shows something, and says on the screen why it stopped.
fn run(verb: &Verb, screen: &mut Screen) -> Exit {
    let (json, ended) = match verb {
        Verb::Demo(args) => (args.json, demo::run(args, screen)),
        Verb::Submit(args) => (args.server.json, submit::run(args, screen)),
        Verb::Get(args) => (args.server.json, get::run(args, screen)),
        Verb::Watch(args) => (args.server.json, watch::run(args, screen)),
        Verb::List(args) => (args.server.json, list::run(args, screen)),
        Verb::Cancel(args) => (args.server.json, cancel::run(args, screen)),
        Verb::Retry(args) => (args.server.json, retry::run(args, screen)),
        Verb::Unknowns(args) => (args.server.json, unknowns::run(args, screen)),
        Verb::Resolve(args) => (args.server.json, resolve::run(args, screen)),
        Verb::Verify(args) => (args.server.json, verify::run(args, screen)),
        Verb::Contracts(args) => (args.server.json, contracts::run(args, screen)),
        Verb::Serve(_) | Verb::Check(_) | Verb::Bench(_) | Verb::Migrate(_) | Verb::Doctor(_) => return Exit::Usage,
    };
    match ended {
        Ok(exit) => exit,
        Err(stop) => say(&stop, json, screen),
    }
}

fn say(stop: &Stop, json: bool, screen: &mut Screen) -> Exit {
    match stop {
        Stop::Output(error) => unwritten(error, screen),
        Stop::Refused(problem) => match problem.show(json, screen) {
            Ok(()) => problem.exit(),
            Err(error) => unwritten(&error, screen),
        },
        Stop::Told { exit, message, next } => {
            screen.notice(Tone::Bad, "error:", screen::safe(message));
            if let Some(next) = next {
                screen.notice(Tone::Strong, "next:", screen::safe(next));
            }
            *exit
        }
    }
}

/// `onejob list | head -1` is no error that anybody wants to read about.
fn unwritten(error: &io::Error, screen: &mut Screen) -> Exit {
    if error.kind() != io::ErrorKind::BrokenPipe {
        screen.notice(Tone::Bad, "error:", format!("the output cannot be written: {error}"));
    }
    Exit::ClosedPipe
}
