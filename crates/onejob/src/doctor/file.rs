//! A SQLite file.

use std::path::Path;

use super::{Check, State, jobs, size};
use crate::config::Config;
use crate::store::examined::{ExaminedContents, ExaminedFile};

/// Less than this on the disk, and the file will soon not grow any more.
const LITTLE_SPACE: u64 = 1 << 30;

/// A log that is longer than this is not being folded.
const LONG_LOG: u64 = 256 << 20;

/// What a file says.
pub(super) fn judge(config: &Config, path: &Path, seen: &ExaminedFile) -> Vec<Check> {
    let mut checks = vec![place(path, seen), process(seen)];
    if seen.exists {
        match &seen.contents {
            Ok(contents) => {
                checks.extend(of_contents(contents));
                checks.push(log(seen));
            }
            Err(why) => checks.push(Check::finding(
                "file.contents",
                format!("it cannot be read: {why}"),
                "give onejob a file of its own, the build that wrote it, or the last backup (docs/operating.md)",
            )),
        }
    }
    checks.push(space(seen));
    if let (true, Ok(contents)) = (seen.exists, &seen.contents) {
        checks.extend(jobs::judge(config, &contents.jobs));
    }
    checks
}

fn place(path: &Path, seen: &ExaminedFile) -> Check {
    const NAME: &str = "file.writable";
    let shown = path.display();
    let rights = "give the user that runs `onejob serve` the right to write the file and its folder: the log and the lock \
                  stand beside it";
    match (&seen.folder_writable, &seen.file_writable) {
        (Err(why), _) => Check::finding(NAME, format!("the folder of {shown} takes no files: {why}"), rights),
        (Ok(()), Err(why)) => Check::finding(NAME, format!("{shown} cannot be written: {why}"), rights),
        (Ok(()), Ok(())) if seen.exists => {
            let bytes = i64::try_from(seen.bytes).unwrap_or(i64::MAX);
            Check::good(NAME, format!("{shown} and its folder can be written; {}", size(bytes)))
        }
        (Ok(()), Ok(())) => Check::note(NAME, format!("{shown} is not there yet: `serve` makes it")),
    }
}

fn process(seen: &ExaminedFile) -> Check {
    const NAME: &str = "file.process";
    match seen.in_use {
        None => Check::note(NAME, "no process serves it"),
        Some(Some(process)) => Check::good(NAME, format!("process {process} serves it; it is not disturbed")),
        Some(None) => Check::good(NAME, "a process serves it; it is not disturbed"),
    }
}

fn of_contents(contents: &ExaminedContents) -> [Check; 3] {
    let (found, known) = contents.schema_version;
    let schema = match found == known {
        true => Check::good("file.schema", format!("version {found}, the one that this build knows")),
        false => Check::note("file.schema", format!("version {found}; `serve` brings it to {known} at its start")),
    };
    let whole = match &contents.quick_check {
        None => Check::skipped("file.integrity", "not while a process serves it: a long read would hold its log back"),
        Some(faults) if faults.is_empty() => Check::good("file.integrity", "PRAGMA quick_check finds nothing"),
        Some(faults) => Check::finding(
            "file.integrity",
            format!("PRAGMA quick_check: {}", faults.join("; ")),
            "the file is damaged: keep a copy of it, go back to the last backup, and look at the disk",
        ),
    };
    let durable = match contents.journal_mode == "wal" || found == 0 {
        true => Check::good("file.durability", "WAL, and `serve` writes with synchronous=FULL: a 2xx is on the disk"),
        false => Check {
            state: State::Note,
            ..Check::note("file.durability", format!("journal_mode={}; `serve` sets WAL", contents.journal_mode))
        },
    };
    [schema, whole, durable]
}

fn log(seen: &ExaminedFile) -> Check {
    const NAME: &str = "file.log";
    let text = format!("the write-ahead log has {}", size(i64::try_from(seen.log_bytes).unwrap_or(i64::MAX)));
    match seen.log_bytes > LONG_LOG {
        false => Check::good(NAME, text),
        true => Check::finding(
            NAME,
            text,
            "somebody reads the file without end and keeps the log from being folded: a shell, a backup; end it",
        ),
    }
}

fn space(seen: &ExaminedFile) -> Check {
    const NAME: &str = "file.space";
    match &seen.free_bytes {
        Err(why) => Check::skipped(NAME, why),
        Ok(free) => {
            let text = format!("{} free on its disk", size(i64::try_from(*free).unwrap_or(i64::MAX)));
            match *free < LITTLE_SPACE {
                false => Check::good(NAME, text),
                true => Check::finding(
                    NAME,
                    text,
                    "make room, or shorten server.retention: with a full disk every post is answered 503",
                ),
            }
        }
    }
}
