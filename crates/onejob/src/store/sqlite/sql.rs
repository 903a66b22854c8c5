//! Every statement, by the name of its file.

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) const $name: &str = include_str!($file);)*

        /// All of them, for the test that prepares each and the one that looks at their plans.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

statements! {
    SUBMIT = "submit.sql";
    JOB_BY_KEY = "job_by_key.sql";
    JOB_BY_ID = "job_by_id.sql";
    ATTEMPTS_OF_JOB = "attempts_of_job.sql";
    JOB_OF_ATTEMPT = "job_of_attempt.sql";
    START = "start.sql";
    WRITE_ATTEMPT = "write_attempt.sql";
    COMPLETE = "complete.sql";
    WRITE_JOB = "write_job.sql";
    TOUCH_JOB = "touch_job.sql";
    FILL_IN = "fill_in.sql";
    COUNT_DUPLICATES = "count_duplicates.sql";
    NOTICE = "notice.sql";
    NOTICES = "notices.sql";
    NEXT_PROVIDER = "next_provider.sql";
    NEXT_PRIORITY = "next_priority.sql";
    CLAIM = "claim.sql";
    NEXT_DUE = "next_due.sql";
    REAP_BEFORE = "reap_before.sql";
    REAP_AFTER = "reap_after.sql";
    LIST_JOBS = "list_jobs.sql";
    LIST_JOBS_OF_OWNER = "list_jobs_of_owner.sql";
    LIST_JOBS_OF_KEY = "list_jobs_of_key.sql";
    LIST_JOBS_BY_RARER_STATE = "list_jobs_by_rarer_state.sql";
    LIST_JOBS_RUNNING = "list_jobs_running.sql";
    COUNT_JOBS_OF_OWNER = "count_jobs_of_owner.sql";
    LIST_ATTEMPTS = "list_attempts.sql";
    LIST_ATTEMPTS_UNKNOWN = "list_attempts_unknown.sql";
    LIST_ATTEMPTS_LIVE = "list_attempts_live.sql";
    UNKNOWN_LONGEST = "unknown_longest.sql";
    QUEUED_DEADLINES = "queued_deadlines.sql";
    COUNT_QUEUED = "count_queued.sql";
    COUNT_UNKNOWN = "count_unknown.sql";
    NEXT_UNKNOWN_TASK = "next_unknown_task.sql";
    TOMBSTONE = "tombstone.sql";
    PRUNABLE = "prunable.sql";
    BURY = "bury.sql";
    PRUNE_NOTICES = "prune_notices.sql";
    PRUNE_ATTEMPTS = "prune_attempts.sql";
    PRUNE_JOB = "prune_job.sql";
    CERTIFY = "certify.sql";
    CERTIFICATE_BY_ID = "certificate_by_id.sql";
    LIST_CERTIFICATES = "list_certificates.sql";
    VALID_CERTIFICATES = "valid_certificates.sql";
    SUSPEND = "suspend.sql";
    SUSPEND_ALL = "suspend_all.sql";
    BEGIN_VERIFICATION = "begin_verification.sql";
    LEASE_OF_VERIFICATION = "lease_of_verification.sql";
    END_VERIFICATION = "end_verification.sql";
    LEAVE_VERIFICATION = "leave_verification.sql";
    VERIFICATIONS = "verifications.sql";
    PRUNE_CERTIFICATES = "prune_certificates.sql";
}
