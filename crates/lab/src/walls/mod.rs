//! Takes each wall away in turn and looks whether a test notices: a test that passes without the wall
//! passes for the wrong reason.
//!
//! It works on a copy of the workspace, in a folder of its own; nothing here is changed.

mod list;
mod postgres;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// All of them.
fn walls() -> impl Iterator<Item = &'static Wall> {
    list::WALLS.iter().chain(postgres::WALLS)
}

/// What is copied; the tests need no more.
const COPIED: &[&str] = &["Cargo.toml", "Cargo.lock", "clippy.toml", "crates", "presets", "docs"];

/// Tests that hold a text against a file: they would notice any change, whatever it breaks.
const NOT_COUNTED: &[&str] =
    &["the_schema_is_the_one_that_is_written_down", "statements_keep_their_plans", "every_sql_file_is"];

/// The test runs that may notice when a wall of the rules or of the embedded store is gone.
const RUNS: &[Run] = &[
    Run { target: &["-p", "onejob-core", "--lib"], filters: &[] },
    Run { target: &["-p", "onejob", "--lib"], filters: &["store::"] },
    Run { target: &["-p", "onejob-lab", "--test", "it"], filters: &["store_", "sqlite::"] },
];

/// Those that may notice when a wall of the store of many nodes is gone.
const POSTGRES_RUNS: &[Run] = &[Run { target: &["-p", "onejob-lab", "--test", "it"], filters: &["postgres"] }];

/// A build and a run of the tests take about a minute where nothing else runs.
const LONGEST_RUN: Duration = Duration::from_secs(15 * 60);

#[derive(PartialEq, Eq)]
struct Run {
    target: &'static [&'static str],
    filters: &'static [&'static str],
}

/// Options of `cargo lab walls`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only walls whose name contains this; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Where the copy is built; kept, so that a second run is faster.
    #[arg(long, default_value = "target/walls")]
    folder: PathBuf,
}

/// One wall, and the edit that takes it away.
pub(crate) struct Wall {
    /// The rule it stands for.
    pub(crate) rule: &'static str,
    /// What it is.
    pub(crate) name: &'static str,
    /// The edits: file, text that is there, text in its place.
    pub(crate) edits: &'static [(&'static str, &'static str, &'static str)],
}

impl Wall {
    /// The test runs that may notice when it is gone.
    fn runs(&self) -> &'static [Run] {
        let of_postgres = self.edits.iter().any(|(file, ..)| file.contains("store/postgres/"));
        if of_postgres { POSTGRES_RUNS } else { RUNS }
    }
}

/// Runs the tool; fails if a wall is gone and no test noticed.
pub fn run(arguments: &Arguments) -> ExitCode {
    match try_all(arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(unnoticed) => {
            eprintln!("{unnoticed} walls can be taken away without a test noticing");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cargo lab walls: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_all(arguments: &Arguments) -> io::Result<usize> {
    let copy = arguments.folder.join("workspace");
    let target = arguments.folder.join("target");
    let chosen = |wall: &&'static Wall| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| wall.name.contains(only.as_str()))
    };
    let mut unnoticed = 0;
    refresh(&copy)?;
    if let Some(stale) = walls().find_map(|wall| stale(wall, &copy)) {
        return Err(io::Error::other(stale));
    }
    let mut standing = BTreeSet::new();
    for runs in [RUNS, POSTGRES_RUNS] {
        if walls().filter(chosen).any(|wall| wall.runs() == runs) {
            standing.extend(failing(&copy, &target, runs)?);
        }
    }
    if !standing.is_empty() {
        return Err(io::Error::other(format!("tests fail with all walls standing: {standing:?}")));
    }
    println!("| rule | wall | noticed by |\n|---|---|---|");
    for wall in walls().filter(chosen) {
        let originals = take_away(wall, &copy)?;
        let noticed = failing(&copy, &target, wall.runs())?;
        for (path, text) in originals {
            std::fs::write(path, text)?;
        }
        unnoticed += usize::from(noticed.is_empty());
        println!("| {} | {} | {} |", wall.rule, wall.name, describe(&noticed));
        io::stdout().flush()?;
    }
    Ok(unnoticed)
}

fn describe(noticed: &BTreeSet<String>) -> String {
    let few: Vec<String> = noticed.iter().take(3).map(|name| format!("`{name}`")).collect();
    match noticed.len() {
        0 => "**nothing**".into(),
        1..=3 => few.join(", "),
        more => format!("{} and {} more", few.join(", "), more - 3),
    }
}

/// Makes the copy equal to the workspace. Files that are equal are left alone, so that cargo builds
/// only what an edit has touched.
fn refresh(copy: &Path) -> io::Result<()> {
    std::fs::create_dir_all(copy)?;
    for name in COPIED {
        let from = Path::new(name);
        if from.exists() {
            refresh_one(from, &copy.join(name))?;
        }
    }
    Ok(())
}

fn refresh_one(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        let wanted = std::fs::read(from)?;
        if std::fs::read(to).ok().as_ref() != Some(&wanted) {
            std::fs::write(to, wanted)?;
        }
        return Ok(());
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let name = entry?.file_name();
        refresh_one(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// What of a wall's edits no longer fits the code.
pub(crate) fn stale(wall: &Wall, root: &Path) -> Option<String> {
    wall.edits.iter().find_map(|(file, standing, _)| {
        let fits = std::fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(standing));
        (!fits).then(|| format!("{}: {file} no longer says `{standing}`", wall.name))
    })
}

/// Edits the copy; gives the files as they were.
fn take_away(wall: &Wall, copy: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut originals = Vec::new();
    for (file, standing, gone) in wall.edits {
        let path = copy.join(file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, text.replace(standing, gone))?;
        originals.push((path, text));
    }
    Ok(originals)
}

/// The names of the tests that fail. A copy that does not compile is an error of the list.
fn failing(copy: &Path, target: &Path, runs: &[Run]) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for run in runs {
        let mut command = Command::new("cargo");
        command.current_dir(copy).env("CARGO_TARGET_DIR", std::path::absolute(target)?).env("RUST_BACKTRACE", "0");
        command.args(["test", "--quiet", "--no-fail-fast"]).args(run.target).arg("--").args(run.filters);
        command.args(NOT_COUNTED.iter().flat_map(|name| ["--skip", name]));
        let Some(output) = output_in_time(command)? else {
            names.insert("a run that hangs".into());
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = text.lines().filter_map(|line| line.strip_prefix("    ")).map(str::trim);
        let before = names.len();
        names.extend(failed.filter(|name| is_test_name(name)).map(short));
        if !output.status.success() && names.len() == before {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            if errors.contains("could not compile") {
                return Err(io::Error::other(format!("the copy does not build:\n{errors}")));
            }
            // Killed or aborted: noticed, but no test can say so itself.
            names.insert("a run that ended badly".into());
        }
    }
    Ok(names)
}

/// What a command printed and how it ended; none if it was stopped because it did not end: without a wall,
/// a test may wait for ever.
fn output_in_time(mut command: Command) -> io::Result<Option<Output>> {
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = format!("-{}", child.id());
    let (ended, is_over) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let output = child.wait_with_output();
        // Nobody listens to a run that was stopped.
        let _ = ended.send(());
        output
    });
    let in_time = is_over.recv_timeout(LONGEST_RUN).is_ok();
    if !in_time {
        Command::new("kill").args(["-KILL", "--", &group]).status()?;
    }
    let output = reader.join().map_err(|_| io::Error::other("the reader of a run panicked"))??;
    Ok(in_time.then_some(output))
}

fn is_test_name(line: &str) -> bool {
    line.contains("::") && line.chars().all(|c| c.is_ascii_alphanumeric() || c == ':' || c == '_')
}

fn short(name: &str) -> String {
    name.rsplit("::").next().unwrap_or(name).to_owned()
}
