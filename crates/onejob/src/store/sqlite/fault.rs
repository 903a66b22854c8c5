//! What can go wrong inside a transaction, sorted by whom it concerns.

use rusqlite::ErrorCode;

/// A fault of one command, or of all.
#[derive(Debug)]
pub(super) enum Fault {
    /// This command alone: a row that means nothing, or a wall that refused what the rules allowed.
    Refused(String),
    /// The file, the disk, the memory: every command of the batch.
    Broken(String),
}

impl Fault {
    /// Sorts an error of SQLite.
    pub(super) fn of(error: &rusqlite::Error) -> Fault {
        let text = error.to_string();
        match error {
            rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
                // A torn page concerns whoever needs it; the rest of the file may be sound.
                ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::TooBig
                | ErrorCode::DatabaseCorrupt => Fault::Refused(text),
                _ => Fault::Broken(text),
            },
            // Everything else is a value that does not convert.
            _ => Fault::Refused(text),
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::of(&error)
    }
}
