//! `onejob doctor`: what is wrong with what a node stands on, and what to do about it.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use comfy_table::{Cell, Color};
use serde_json::{Value, json};

use super::exit::Exit;
use super::screen::{Screen, Tone, safe};
use super::{Stop, say};
use crate::config::{Config, ConfigErrors};
use crate::doctor::{Check, State, examine};

/// Look at the store, the nodes and the providers' hosts, and say what to do about each finding
///
/// It only looks: a running node is not disturbed, and nothing is sent to a provider that it could bill.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  onejob doctor\n  onejob doctor --config /etc/onejob.toml --json | \
                        jq '.checks[] | select(.state == \"finding\")'\n")]
pub(super) struct DoctorArgs {
    /// The configuration file; paths in it are relative to it
    #[arg(long, default_value = "onejob.toml", value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// Looks and tells.
pub(super) fn run(args: &DoctorArgs) -> ExitCode {
    let mut screen = Screen::of_process();
    let exit = match doctor(args, &mut screen) {
        Ok(exit) => exit,
        Err(error) => say(&Stop::from(error), args.json, &mut screen),
    };
    ExitCode::from(exit.code())
}

/// The same on any screen.
pub(super) fn doctor(args: &DoctorArgs, screen: &mut Screen) -> io::Result<Exit> {
    let checks = look(&args.config)?;
    let findings = checks.iter().filter(|check| check.state == State::Finding).count();
    if args.json {
        screen.line(document(&args.config, &checks).to_string())?;
    } else {
        show(&checks, screen)?;
        let text = match findings {
            0 => screen.paint(Tone::Good, "nothing found"),
            1 => screen.paint(Tone::Bad, "1 finding"),
            many => screen.paint(Tone::Bad, &format!("{many} findings")),
        };
        screen.line("")?;
        screen.line(text)?;
    }
    Ok(if findings == 0 { Exit::Good } else { Exit::JobNotDone })
}

fn look(path: &Path) -> io::Result<Vec<Check>> {
    let (config, mut checks) = match read(path) {
        Ok(read) => read,
        Err(errors) => {
            return Ok(errors.0.iter().map(|error| of_file(error.to_string(), "correct it: `onejob check`")).collect());
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    checks.extend(runtime.block_on(examine(&config)));
    Ok(checks)
}

/// Reads the file as `serve` does; a secret that is missing here is a finding, and no reason to look at nothing else.
fn read(path: &Path) -> Result<(Config, Vec<Check>), ConfigErrors> {
    let errors = match Config::load(path) {
        Ok(config) => return Ok((config, Vec::new())),
        Err(errors) => errors,
    };
    let Ok(text) = std::fs::read_to_string(path) else { return Err(errors) };
    let missing = RefCell::new(BTreeSet::new());
    let env = |name: &str| {
        std::env::var(name).ok().or_else(|| {
            missing.borrow_mut().insert(name.to_owned());
            Some("missing".to_owned())
        })
    };
    let base = path.parent().unwrap_or(Path::new(""));
    let config = Config::parse(&text, &path.display().to_string(), base, &env).map_err(|_| errors)?;
    let finding = |name: &String| {
        let seen = format!("the environment variable {name} is not set here");
        of_file(seen, "set it for `onejob serve`: without it a node does not start. Run doctor as that user does")
    };
    let checks = missing.borrow().iter().map(finding).collect();
    Ok((config, checks))
}

fn of_file(seen: String, advice: &str) -> Check {
    Check { name: "configuration", state: State::Finding, seen, advice: Some(advice.to_owned()) }
}

fn show(checks: &[Check], screen: &mut Screen) -> io::Result<()> {
    let mut table = screen.table(&["check", "", "seen"]);
    for check in checks {
        let colour = match check.state {
            State::Good => Color::DarkGreen,
            State::Note | State::Skipped => Color::Reset,
            State::Finding => Color::DarkRed,
        };
        table.add_row([
            Cell::new(check.name),
            Cell::new(check.state.as_str()).fg(colour),
            Cell::new(safe(&check.seen)),
        ]);
    }
    screen.print_table(&table)?;
    for check in checks {
        if let Some(advice) = &check.advice {
            screen.line("")?;
            screen.advise(&format!("{}:", check.name), &safe(&format!("{}\n{advice}", check.seen)), &[])?;
        }
    }
    Ok(())
}

fn document(file: &Path, checks: &[Check]) -> Value {
    let list: Vec<Value> = checks
        .iter()
        .map(|c| json!({"check": c.name, "state": c.state.as_str(), "seen": c.seen, "do": c.advice}))
        .collect();
    json!({
        "file": file.display().to_string(),
        "ok": checks.iter().all(|check| check.state != State::Finding),
        "checks": list,
    })
}
