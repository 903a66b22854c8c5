//! What can go wrong on a connection, sorted by whom it concerns and by what is known afterwards.

use deadpool_postgres::PoolError;
use onejob_core::JobId;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use crate::store::StoreError;

/// A fault of a transaction. Nothing of it stands, but for [`Fault::Ambiguous`].
#[derive(Debug)]
pub(super) enum Fault {
    /// One of its commands alone: a row that means nothing, a value that the database cannot hold, or a
    /// wall that refused what the rules allowed. Which one is not known.
    Row(String),
    /// These jobs are not as they were remembered.
    Stale(Vec<JobId>),
    /// The node that wanted to start attempts holds no lease any more.
    NoLease,
    /// Two transactions met; the same again goes through.
    Retry(String),
    /// Somebody holds a row, or a key that is not committed yet, for longer than this one waits.
    Held(String),
    /// The database, or the connection.
    Away(String),
    /// The commit was sent and its end is not known.
    Ambiguous(String),
}

impl Fault {
    /// Sorts an error of a statement.
    pub(super) fn of(error: &Error) -> Fault {
        let text = sentence(error);
        let Some(db) = error.as_db_error() else {
            // A value that does not convert is one row's fault; everything else is the connection's.
            return if error.is_closed() || has_io_error(error) { Fault::Away(text) } else { Fault::Row(text) };
        };
        let code = db.code();
        if matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) {
            return Fault::Away(text);
        }
        match *code {
            SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => Fault::Retry(text),
            SqlState::LOCK_NOT_AVAILABLE => Fault::Held(text),
            // The schema changed under a prepared statement, or a pooler gave us another connection.
            SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::FEATURE_NOT_SUPPORTED => Fault::Retry(text),
            // Data, constraints, and what is too large for an index.
            _ if ["22", "23", "54"].iter().any(|class| code.code().starts_with(class)) => Fault::Row(text),
            _ => Fault::Away(text),
        }
    }

    /// Sorts an error of a COMMIT: the server's own word that it did not is the only sure one.
    pub(super) fn of_commit(error: &Error) -> Fault {
        match (error.as_db_error(), Fault::of(error)) {
            (Some(_), fault @ (Fault::Row(_) | Fault::Retry(_))) => fault,
            (_, _) => Fault::Ambiguous(sentence(error)),
        }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Fault {
        match error {
            PoolError::Backend(error) => Fault::Away(sentence(&error)),
            PoolError::Timeout(_) => Fault::Away("no connection became free or could be opened in time".into()),
            PoolError::Closed => Fault::Away("the store is closed".into()),
            PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => Fault::Away(error.to_string()),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        match fault {
            Fault::Row(why) => StoreError::Refused(why),
            Fault::Stale(_) => StoreError::Refused("a job changes faster than it can be written".into()),
            Fault::NoLease => StoreError::Unavailable("this node holds no lease and starts nothing".into()),
            Fault::Held(why) => {
                StoreError::Unavailable(format!("another transaction holds this key or job for too long: {why}"))
            }
            Fault::Retry(why) | Fault::Away(why) => StoreError::Unavailable(why),
            Fault::Ambiguous(why) => StoreError::OutcomeUnknown(why),
        }
    }
}

/// An error in a sentence without any of the rows' values: the server's detail repeats them.
pub(super) fn sentence(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    }
}

fn has_io_error(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}
