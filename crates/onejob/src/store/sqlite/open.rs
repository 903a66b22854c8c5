//! Opening the file: its lock, its settings, its schema.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::store::record::Hold;

/// Marks the file as ours (`PRAGMA application_id`): "1job".
const APPLICATION_ID: i32 = 0x316a_6f62;

/// The migrations, in order; their number is the schema's version (`PRAGMA user_version`).
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_jobs.sql"),
    include_str!("migrations/0002_tombstones.sql"),
    include_str!("migrations/0003_certificates.sql"),
];

/// Bytes per page of a new file. Keys come in no order, so each new one writes a leaf of its index
/// anew, the whole of it: small pages halve what that costs, and keep it from growing with the file.
const PAGE_BYTES: u32 = 2_048;

/// How the file is used.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Page cache of the writer, in bytes.
    pub cache_bytes: u64,
    /// How much of the open jobs the writer remembers, in bytes; 0 makes it read every job anew.
    pub remembered_bytes: usize,
    /// The write-ahead log is folded into the file when it has this many pages.
    pub checkpoint_pages: u32,
    /// How long to wait for another connection's lock. Ours never wait for each other for long; a
    /// backup or a shell may hold one.
    pub busy_timeout: Duration,
    /// The largest size of the file, in pages; the disk's own limit if absent.
    pub max_pages: Option<u32>,
    /// Called between each decision and its write; for tests.
    pub hold: Option<Hold>,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            cache_bytes: 64 << 20,
            remembered_bytes: 64 << 20,
            // 32 MiB: what is written again and again is folded once, and a checkpoint's own waits for
            // the disk are spread over many commits.
            checkpoint_pages: 16_000,
            busy_timeout: Duration::from_secs(5),
            max_pages: None,
            hold: None,
        }
    }
}

/// Why the file cannot be used; a sentence for people, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "{} is in use by {}: one process owns the file. Stop that process, or give this one another file",
        .file.display(),
        .process.as_ref().map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
    )]
    InUse {
        /// The database.
        file: PathBuf,
        /// The id of the process, if it wrote it down.
        process: Option<u32>,
    },
    /// It has other names, and each has its own lock and its own log.
    #[error(
        "{} has {names} names (hard links): a process that opens it by another name would take no notice of this one, \
         and the file would be damaged. Remove the other names; a symbolic link does no harm",
        .file.display()
    )]
    ManyNames {
        /// The database.
        file: PathBuf,
        /// How many there are.
        names: u64,
    },
    /// It was written by a newer onejob.
    #[error(
        "{} has schema version {found} and this onejob knows {known}: use the newer onejob that wrote it",
        .file.display()
    )]
    Newer {
        /// The database.
        file: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// It holds something else.
    #[error("{} is a database of another program: give onejob a file of its own", .file.display())]
    Foreign {
        /// The database.
        file: PathBuf,
    },
    /// The file system refuses.
    #[error("cannot open {}: {source}", .file.display())]
    Io {
        /// The database or its lock.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// SQLite refuses.
    #[error("cannot open {}: {source}", .file.display())]
    Sqlite {
        /// The database.
        file: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

/// The one name of the database, which is made if it is not there: two ways to it must meet at one lock.
pub(super) fn only_name(path: &Path) -> Result<PathBuf, OpenError> {
    let io = |source| OpenError::Io { file: path.to_owned(), source };
    let file = match path.canonicalize() {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // A symbolic link that points to nothing yet has no name behind it until the file is there.
            // A file that is there is never opened here: closing it would give up SQLite's own locks.
            OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(io)?;
            path.canonicalize().map_err(io)?
        }
        Err(error) => return Err(io(error)),
    };
    match names(&file.metadata().map_err(io)?) {
        0 | 1 => Ok(file),
        names => Err(OpenError::ManyNames { file, names }),
    }
}

/// How many names a file has; a folder has one.
#[cfg(unix)]
fn names(metadata: &Metadata) -> u64 {
    if metadata.is_dir() { 1 } else { std::os::unix::fs::MetadataExt::nlink(metadata) }
}

/// How many names a file has, where nobody tells.
#[cfg(not(unix))]
fn names(_: &Metadata) -> u64 {
    1
}

/// How long a lock is asked for before it counts as held, and the pauses between.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Takes the lock beside the database; it is held until the file is dropped, or the process dies.
///
/// SQLite's own locks let several processes write in turn. Ours must not: each takes the other's
/// attempts for those of a dead process.
pub(super) fn lock(database: &Path) -> Result<File, OpenError> {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    let path = PathBuf::from(name);
    let io = |source| OpenError::Io { file: path.clone(), source };
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
    match patiently(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(OpenError::InUse { file: database.to_owned(), process });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    file.set_len(0).map_err(io)?;
    file.rewind().map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}

/// The lock, asked for again for a moment: a process that has just ended, or one that its owner has just
/// forked and that has not become another program yet, lets go of it at once.
fn patiently(file: &File) -> Result<(), TryLockError> {
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
}

/// Opens the writer's connection, with everything that must be set before the first statement.
pub(super) fn writer(file: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::Sqlite { file: file.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags).map_err(sqlite)?;
    // First of all: everything after it may find the file locked for a moment, the switch to WAL too.
    connection.busy_timeout(options.busy_timeout).map_err(sqlite)?;
    // Before anything is written.
    known_version(&connection, file)?;
    set_up_writer(&connection, options).map_err(sqlite)?;
    migrate(&mut connection, file)?;
    Ok(connection)
}

fn set_up_writer(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // R10: a commit is on the disk before it is answered. With group commit FULL costs little.
    connection.pragma_update(None, "synchronous", "FULL")?;
    let kibibytes = i64::try_from(options.cache_bytes >> 10).unwrap_or(i64::MAX);
    connection.pragma_update(None, "cache_size", -kibibytes)?;
    // No SQL of ours names a string in double quotes; a typo must be an error.
    connection.pragma_update(None, "trusted_schema", false)?;
    if let Some(pages) = options.max_pages {
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Opens a connection that only reads.
pub(super) fn reader(file: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::Sqlite { file: file.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(sqlite)?;
    connection.busy_timeout(options.busy_timeout).map_err(sqlite)?;
    connection.pragma_update(None, "query_only", true).map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Brings the schema to the version that this build knows.
fn migrate(connection: &mut Connection, file: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::Sqlite { file: file.to_owned(), source };
    let done = known_version(connection, file)?;
    for (before, migration) in MIGRATIONS.iter().enumerate().skip(done) {
        let transaction = connection.transaction().map_err(sqlite)?;
        transaction.execute_batch(migration).map_err(sqlite)?;
        // A migration and its number are one commit.
        transaction.pragma_update(None, "user_version", number(before + 1)).map_err(sqlite)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.commit().map_err(sqlite)?;
    }
    Ok(())
}

/// How many migrations the file has seen. Refuses a file that is not ours or newer than this build.
pub(super) fn known_version(connection: &Connection, file: &Path) -> Result<usize, OpenError> {
    let ask = |question: &str| {
        let answer = connection.query_row(question, [], |row| row.get::<_, i64>(0));
        answer.map_err(|source| OpenError::Sqlite { file: file.to_owned(), source })
    };
    let is_ours = ask("PRAGMA application_id")? == i64::from(APPLICATION_ID);
    if !is_ours && ask("SELECT count(*) FROM sqlite_schema")? > 0 {
        return Err(OpenError::Foreign { file: file.to_owned() });
    }
    let (found, known) = (ask("PRAGMA user_version")?, number(MIGRATIONS.len()));
    match usize::try_from(found) {
        Ok(version) if found <= known => Ok(version),
        _ => Err(OpenError::Newer { file: file.to_owned(), found, known }),
    }
}

pub(super) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
