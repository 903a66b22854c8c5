//! Every statement, by the name of its file. Names are qualified (`onejob.jobs`), so that the product can
//! live in a database beside other tables; every parameter is cast where it first stands.

use std::sync::OnceLock;

use tokio_postgres::types::Type;

/// A statement and the types of its parameters.
pub(super) struct Statement {
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    types: OnceLock<Vec<Type>>,
}

impl Statement {
    const fn new(file: &'static str, text: &'static str) -> Statement {
        Statement { file, text, types: OnceLock::new() }
    }

    /// The types of the parameters, in order, read from their casts: so that a statement needs no
    /// preparation where connections keep none (a pooler in transaction mode).
    pub(super) fn types(&self) -> &[Type] {
        self.types.get_or_init(|| {
            let mut types = Vec::new();
            while let Some(found) = cast_of(self.text, types.len() + 1) {
                types.push(found);
            }
            types
        })
    }
}

fn cast_of(text: &str, number: usize) -> Option<Type> {
    let mark = format!("${number}::");
    let cast = &text[text.find(&mark)? + mark.len()..];
    let end = cast.find(|c: char| !(c.is_ascii_lowercase() || c == '[' || c == ']')).unwrap_or(cast.len());
    Some(match &cast[..end] {
        "uuid" => Type::UUID,
        "text" => Type::TEXT,
        "bigint" => Type::INT8,
        "bytea" => Type::BYTEA,
        "boolean" => Type::BOOL,
        "uuid[]" => Type::UUID_ARRAY,
        "text[]" => Type::TEXT_ARRAY,
        "bigint[]" => Type::INT8_ARRAY,
        "bytea[]" => Type::BYTEA_ARRAY,
        "boolean[]" => Type::BOOL_ARRAY,
        _ => return None,
    })
}

/// Several statements at once, the only ones; so they stand in no list.
pub(super) const SCHEMA_BEGIN: &str = include_str!("schema_begin.sql");

macro_rules! statements {
    ($($name:ident = $kind:ident $file:literal;)*) => {
        $(pub(super) static $name: Statement = Statement::new($file, statements!(@$kind $file));)*

        /// All of them, for the tests that prepare each and look at their plans.
        pub(super) static ALL: &[&Statement] = &[$(&$name),*];
    };
    (@only $file:literal) => { include_str!($file) };
    // A statement that names jobs, with what is read of each.
    (@page $file:literal) => {
        concat!("WITH page AS (\n", include_str!($file), ")\n", include_str!("jobs_of_page.sql"))
    };
}

statements! {
    SUBMIT = only "submit.sql";
    START = only "start.sql";
    JOB_BY_KEY = only "job_by_key.sql";
    TOMBSTONE = only "tombstone.sql";
    LOCK = only "lock.sql";
    JOB_BY_ID = page "job_by_id.sql";
    JOB_OF_ATTEMPT = page "job_of_attempt.sql";
    JOBS_UNLIKE = page "jobs_unlike.sql";
    WRITE_ATTEMPT = only "write_attempt.sql";
    COMPLETE = only "complete.sql";
    WRITE_JOB = only "write_job.sql";
    TOUCH_JOB = only "touch_job.sql";
    FILL_IN = only "fill_in.sql";
    COUNT_DUPLICATES = only "count_duplicates.sql";
    ENQUEUE = only "enqueue.sql";
    DEQUEUE = only "dequeue.sql";
    NOTICE = only "notice.sql";
    NOTICES = only "notices.sql";
    CLAIM = only "claim.sql";
    NEXT_DUE = only "next_due.sql";
    NEXT_PROVIDER = only "next_provider.sql";
    NEXT_UNKNOWN_TASK = only "next_unknown_task.sql";
    ENTER = only "enter.sql";
    RENEW = only "renew.sql";
    LEAVE = only "leave.sql";
    LEASE = only "lease.sql";
    FENCE = only "fence.sql";
    REAP = only "reap.sql";
    NODES = only "nodes.sql";
    FORGET_NODES = only "forget_nodes.sql";
    LIST_JOBS = page "list_jobs.sql";
    LIST_JOBS_OF_OWNER = page "list_jobs_of_owner.sql";
    LIST_JOBS_OF_KEY = page "list_jobs_of_key.sql";
    LIST_JOBS_QUEUED = page "list_jobs_queued.sql";
    LIST_JOBS_UNKNOWN = page "list_jobs_unknown.sql";
    LIST_JOBS_BY_RARER_STATE = page "list_jobs_by_rarer_state.sql";
    LIST_JOBS_RUNNING = page "list_jobs_running.sql";
    COUNT_JOBS_OF_OWNER = only "count_jobs_of_owner.sql";
    LIST_ATTEMPTS = only "list_attempts.sql";
    LIST_ATTEMPTS_UNKNOWN = only "list_attempts_unknown.sql";
    LIST_ATTEMPTS_LIVE = only "list_attempts_live.sql";
    UNKNOWN_LONGEST = only "unknown_longest.sql";
    QUEUED_DEADLINES = only "queued_deadlines.sql";
    COUNT_QUEUED = only "count_queued.sql";
    COUNT_UNKNOWN = only "count_unknown.sql";
    PRUNABLE = only "prunable.sql";
    BURY = only "bury.sql";
    PRUNE_NOTICES = only "prune_notices.sql";
    PRUNE_ATTEMPTS = only "prune_attempts.sql";
    PRUNE_JOB = only "prune_job.sql";
    CERTIFY = only "certify.sql";
    HOLD_CERTIFICATES = only "hold_certificates.sql";
    LIST_CERTIFICATES = only "list_certificates.sql";
    VALID_CERTIFICATES = only "valid_certificates.sql";
    SUSPEND = only "suspend.sql";
    SUSPEND_ALL = only "suspend_all.sql";
    BEGIN_VERIFICATION = only "begin_verification.sql";
    LEASE_OF_VERIFICATION = only "lease_of_verification.sql";
    END_VERIFICATION = only "end_verification.sql";
    LEAVE_VERIFICATION = only "leave_verification.sql";
    VERIFICATIONS = only "verifications.sql";
    PRUNE_CERTIFICATES = only "prune_certificates.sql";
    CLOCK = only "clock.sql";
    PING = only "ping.sql";
    NOTIFY = only "notify.sql";
    SCHEMA_IS_THERE = only "schema_is_there.sql";
    SCHEMA_VERSION = only "schema_version.sql";
    LASTING = only "lasting.sql";
    SCHEMA_IDENTITY = only "schema_identity.sql";
    SCHEMA_DONE = only "schema_done.sql";
}
