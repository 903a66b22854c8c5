//! Looking at a file for `onejob doctor`. A process that serves it is not disturbed: its lock is only asked for,
//! nothing is written, and no long read keeps its log from being folded.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::open::{self, MIGRATIONS, SqliteOptions};
use crate::store::examined::{Asked, ExaminedContents, ExaminedFile, ExaminedJobs, ExaminedQueue};
use crate::store::nodes::wall_clock;

const UNKNOWN: &str = include_str!("examine/unknown.sql");
const QUEUE: &str = include_str!("examine/queue.sql");

/// Looks at a file and at the folder that it stands in, or would stand in.
pub fn examine(path: &Path) -> ExaminedFile {
    let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let exists = file.is_file();
    let in_use = holder(&beside(&file, ".lock"));
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |it| it.len());
    // Before any connection of SQLite's: closing a file gives up its locks in this process.
    let file_writable = match exists {
        true => OpenOptions::new().write(true).open(&file).map(drop).map_err(|error| error.to_string()),
        false if file.is_dir() => Err("it is a folder".to_owned()),
        false => Ok(()),
    };
    let contents = match exists {
        true => contents(&file, in_use.is_some()),
        false => Err("there is no file yet".to_owned()),
    };
    ExaminedFile {
        exists,
        folder_writable: takes_files(folder),
        file_writable,
        in_use,
        bytes: bytes(&file),
        log_bytes: bytes(&beside(&file, "-wal")),
        free_bytes: free(folder),
        contents,
    }
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Whether a process holds the lock, and which. A lock that is free is given back at once.
fn holder(lock: &Path) -> Option<Option<u32>> {
    let mut file = File::open(lock).ok()?;
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            None
        }
        Err(TryLockError::Error(_)) => None,
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            Some(file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok()))
        }
    }
}

fn takes_files(folder: &Path) -> Asked<()> {
    let probe = folder.join(format!(".onejob-doctor-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).open(&probe);
    made.map_err(|error| error.to_string())?;
    fs::remove_file(&probe).map_err(|error| error.to_string())
}

fn free(folder: &Path) -> Asked<u64> {
    let disk = rustix::fs::statvfs(folder).map_err(|error| error.to_string())?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn contents(file: &Path, is_served: bool) -> Asked<ExaminedContents> {
    let connection = open::reader(file, &SqliteOptions::default()).map_err(|error| error.to_string())?;
    let found = open::known_version(&connection, file).map_err(|error| error.to_string())?;
    let sqlite = |error: rusqlite::Error| error.to_string();
    let journal_mode = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(sqlite)?;
    let quick_check = match is_served {
        true => None,
        false => Some(quick_check(&connection).map_err(sqlite)?),
    };
    let jobs = match found {
        0 => ExaminedJobs { now: wall_clock(), ..ExaminedJobs::default() },
        _ => jobs(&connection).map_err(sqlite)?,
    };
    Ok(ExaminedContents {
        journal_mode,
        schema_version: (open::number(found), open::number(MIGRATIONS.len())),
        quick_check,
        jobs,
    })
}

fn quick_check(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA quick_check(10)")?;
    let said = statement.query_map([], |row| row.get(0))?;
    said.filter(|line| !matches!(line, Ok(line) if line == "ok")).collect()
}

fn jobs(connection: &Connection) -> rusqlite::Result<ExaminedJobs> {
    let now = wall_clock();
    let (unknown, unknown_since) = connection.query_row(UNKNOWN, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut statement = connection.prepare(QUEUE)?;
    let queues = statement.query_map(params![now], |row| {
        Ok(ExaminedQueue {
            provider: row.get::<_, String>(0)?.into(),
            queued: row.get(1)?,
            due: row.get(2)?,
            oldest_due: row.get(3)?,
        })
    })?;
    Ok(ExaminedJobs { unknown, unknown_since, queues: queues.collect::<rusqlite::Result<_>>()?, now })
}
