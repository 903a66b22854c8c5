//! What can be seen of a store from outside, by somebody who only looks: for `onejob doctor`. Facts; what they
//! mean is said elsewhere.

use onejob_core::{Millis, Text};

/// What was asked, or why it could not be.
pub type Asked<T> = std::result::Result<T, String>;

/// A PostgreSQL database.
#[derive(Clone, Debug)]
pub struct ExaminedDatabase {
    /// The server.
    pub server: ExaminedServer,
    /// The version of our schema; 0 without one.
    pub schema_version: Asked<i64>,
    /// The version that this build knows.
    pub known_version: i64,
    /// The jobs.
    pub jobs: Asked<ExaminedJobs>,
    /// The nodes, the youngest first.
    pub nodes: Asked<Vec<ExaminedNode>>,
    /// Our tables, the largest first.
    pub tables: Asked<Vec<ExaminedTable>>,
    /// Open transactions in this database, the longest first.
    pub transactions: Asked<Vec<ExaminedTransaction>>,
    /// Replication slots.
    pub slots: Asked<Vec<ExaminedSlot>>,
    /// Standbys that are connected.
    pub standbys: Asked<Vec<ExaminedStandby>>,
}

/// A PostgreSQL server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedServer {
    /// Where it is, without user and password.
    pub place: String,
    /// As `server_version_num`.
    pub version: i64,
    /// As it says itself.
    pub version_text: String,
    /// Who we are there.
    pub user: String,
    /// In which database.
    pub database: String,
    /// Whether it follows another and takes no writes.
    pub is_standby: bool,
    /// Setting.
    pub fsync: String,
    /// Setting.
    pub full_page_writes: String,
    /// The default of the server, the database or the role.
    pub synchronous_commit: String,
    /// What is open to others than superusers.
    pub connections_most: i64,
    /// Open now.
    pub connections_now: i64,
    /// Its clock minus ours.
    pub clock_ahead_ms: Millis,
    /// What that may be wrong by.
    pub round_trip_ms: Millis,
}

/// What waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExaminedJobs {
    /// Unknown attempts.
    pub unknown: i64,
    /// Since when the oldest of them is.
    pub unknown_since: Option<Millis>,
    /// Queued jobs by provider.
    pub queues: Vec<ExaminedQueue>,
    /// The clock that these are to be held against.
    pub now: Millis,
}

/// The jobs that are queued for one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedQueue {
    /// Which.
    pub provider: Text,
    /// How many.
    pub queued: i64,
    /// How many of them are due.
    pub due: i64,
    /// Since when the oldest is, or will be.
    pub oldest_due: Option<Millis>,
}

/// A node by its row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedNode {
    /// A host and a process id.
    pub name: String,
    /// How long ago it entered.
    pub age_ms: Millis,
    /// How long its lease holds; negative if it has ended.
    pub lease_ms: Millis,
    /// How long ago it left or was declared dead.
    pub ended_ms: Option<Millis>,
    /// Its attempts that are starting or running.
    pub open_attempts: i64,
}

/// One of our tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedTable {
    /// Its name.
    pub name: String,
    /// Rows, about.
    pub live: i64,
    /// Rows that are dead and still there, about.
    pub dead: i64,
    /// How long ago it was cleaned last.
    pub cleaned_ms: Option<Millis>,
    /// With indexes.
    pub bytes: i64,
}

/// A transaction that is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedTransaction {
    /// `session 123`, or `prepared transaction x`.
    pub name: String,
    /// Whose.
    pub user: String,
    /// What the session calls itself.
    pub application: String,
    /// What it does: `active`, `idle in transaction`.
    pub state: String,
    /// How long it has been open.
    pub age_ms: Millis,
}

/// A replication slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedSlot {
    /// Its name.
    pub name: String,
    /// Whether anybody reads from it.
    pub is_active: bool,
    /// Whether it keeps dead rows.
    pub keeps_rows: bool,
    /// How much of the log it keeps.
    pub kept_bytes: Option<i64>,
}

/// A standby.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedStandby {
    /// What it calls itself.
    pub name: String,
    /// `streaming` when all is well.
    pub state: String,
    /// `sync` or `async`.
    pub sync: String,
    /// How far it is behind.
    pub lag_ms: Millis,
}

/// A SQLite file.
#[derive(Clone, Debug)]
pub struct ExaminedFile {
    /// Whether there is one.
    pub exists: bool,
    /// Whether its folder takes new files: the log and the lock stand beside it.
    pub folder_writable: Asked<()>,
    /// Whether it can be written.
    pub file_writable: Asked<()>,
    /// Whether a process serves it, and which.
    pub in_use: Option<Option<u32>>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of its write-ahead log.
    pub log_bytes: u64,
    /// Bytes that are free on its disk.
    pub free_bytes: Asked<u64>,
    /// What is in it.
    pub contents: Asked<ExaminedContents>,
}

/// What is in a SQLite file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedContents {
    /// `wal`, once `serve` has had it.
    pub journal_mode: String,
    /// The schema's version, and the one that this build knows.
    pub schema_version: (i64, i64),
    /// What `PRAGMA quick_check` says; absent while a process serves the file: it would hold its log back.
    pub quick_check: Option<Vec<String>>,
    /// The jobs.
    pub jobs: ExaminedJobs,
}
