//! What a wish for a job must be before it is taken, whichever door it comes through: HTTP, the library, a
//! caller's own transaction.

use jiff::Timestamp;
use onejob_core::{Millis, Text};
use serde_json::Value;

use super::Order;
use crate::config::Config;
use crate::contract::Violation;
use crate::intent::{Intent, KeyError};
use crate::json::JsonError;

/// Longest owner, in bytes.
const MAX_OWNER_BYTES: usize = 255;

/// The lowest and the highest priority.
pub(crate) const PRIORITIES: (i32, i32) = (-100, 100);

/// The first moment that RFC 3339 can write: the start of the year 1. The last is the last of `jiff`.
const FIRST_MOMENT: Millis = -62_135_596_800_000;

/// A wish for a job whose members have their types.
#[derive(Clone, Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) owner: Text,
    pub(crate) idempotency_key: Text,
    pub(crate) task: Text,
    pub(crate) input: &'a Value,
    pub(crate) provider: Option<Text>,
    pub(crate) metadata: Text,
    pub(crate) priority: i32,
    pub(crate) run_at: Option<Millis>,
    pub(crate) deadline: Option<Millis>,
}

/// What is wrong with a request. Nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// It has more bytes than `server.max_body_bytes`.
    #[error("the request has more than {limit} bytes (server.max_body_bytes)")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The idempotency key is none.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It holds what JSON from outside must not: U+0000, nesting beyond [`crate::json::MAX_DEPTH`].
    #[error("the request is not acceptable JSON: {0}")]
    Json(#[from] JsonError),
    /// A member has the wrong value.
    #[error("the member {name:?} must be {expected}")]
    Member {
        /// Which, by its name in the API.
        name: &'static str,
        /// What was expected.
        expected: String,
    },
    /// The task is not configured.
    #[error("no task {0:?} is configured")]
    NoSuchTask(Text),
    /// The input does not match the task's `input_schema`.
    #[error("{0}")]
    Input(Violation),
}

/// An owner is an opaque text of 1 to 255 bytes.
pub(crate) fn check_owner(owner: &str) -> Result<(), Invalid> {
    match owner.len() {
        0 => Err(member("owner", "a string that is not empty")),
        1..=MAX_OWNER_BYTES => Ok(()),
        _ => Err(member("owner", "at most 255 bytes")),
    }
}

/// -100 to 100.
pub(crate) fn check_priority(priority: i32) -> Result<(), Invalid> {
    let (from, to) = PRIORITIES;
    match (from..=to).contains(&priority) {
        true => Ok(()),
        false => Err(member("priority", format!("a whole number from {from} to {to}"))),
    }
}

/// Whether a moment can be written.
pub(crate) fn is_moment(at: Millis) -> bool {
    (FIRST_MOMENT..=Timestamp::MAX.as_millisecond()).contains(&at)
}

/// What is expected of a moment.
pub(crate) const A_MOMENT: &str = "a moment such as 2026-01-31T09:30:00Z (RFC 3339), from 0001-01-01T00:00:00Z to \
                                   9999-12-30T22:00:00Z, or null";

/// Checks a wish against what is configured.
pub(crate) fn order(config: &Config, wish: Wish<'_>) -> Result<Order, Invalid> {
    let task = config.tasks.get(&wish.task).ok_or_else(|| Invalid::NoSuchTask(wish.task.clone()))?;
    if let Some(pinned) = &wish.provider
        && !task.providers.contains(pinned)
    {
        let known = task.providers.join(", ");
        return Err(member("provider", format!("null or one of the task's providers: {known}")));
    }
    if let Some(schema) = &task.input_schema {
        schema.check(wish.input).map_err(Invalid::Input)?;
    }
    Ok(Order {
        intent: Intent::new(&wish.task, wish.input, wish.provider.as_deref()),
        owner: wish.owner,
        idempotency_key: wish.idempotency_key,
        metadata: wish.metadata,
        priority: wish.priority,
        run_at: wish.run_at,
        deadline: wish.deadline,
    })
}

/// A member has the wrong value.
pub(crate) fn member(name: &'static str, expected: impl Into<String>) -> Invalid {
    Invalid::Member { name, expected: expected.into() }
}
