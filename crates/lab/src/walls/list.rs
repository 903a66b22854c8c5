//! The walls, each with the edit that takes it away.

use super::Wall;

const DECIDE: &str = "crates/core/src/decide.rs";
const MEMORY: &str = "crates/onejob/src/store/memory.rs";
const ROW: &str = "crates/onejob/src/store/row.rs";
const SCHEMA: &str = "crates/onejob/src/store/sqlite/migrations/0001_jobs.sql";
const CERTIFICATES: &str = "crates/onejob/src/store/certificates.rs";
const CERTIFICATES_SCHEMA: &str = "crates/onejob/src/store/sqlite/migrations/0003_certificates.sql";
const END_VERIFICATION: &str = "crates/onejob/src/store/sqlite/end_verification.sql";
const SUBMIT: &str = "crates/onejob/src/store/sqlite/submit.sql";
const COMPLETE: &str = "crates/onejob/src/store/sqlite/complete.sql";
const WRITE_JOB: &str = "crates/onejob/src/store/sqlite/write_job.sql";
const WRITE_ATTEMPT: &str = "crates/onejob/src/store/sqlite/write_attempt.sql";
const OPEN: &str = "crates/onejob/src/store/sqlite/open.rs";
const TRANSACTION: &str = "crates/onejob/src/store/sqlite/transaction.rs";
const WRITER: &str = "crates/onejob/src/store/sqlite/writer.rs";

pub(super) const WALLS: &[Wall] = &[
    Wall {
        rule: "R1",
        name: "the unique key of jobs",
        edits: &[
            (SCHEMA, "CREATE UNIQUE INDEX jobs_one_per_owner_and_key", "CREATE INDEX jobs_one_per_owner_and_key"),
            (SUBMIT, "ON CONFLICT (owner, idempotency_key) DO NOTHING", "ON CONFLICT DO NOTHING"),
        ],
    },
    Wall {
        rule: "R2",
        name: "the comparison of fingerprints",
        edits: &[(TRANSACTION, "if intent.fingerprint == submit.intent.fingerprint", "if true")],
    },
    Wall {
        rule: "R3",
        name: "the trigger on the intent",
        edits: &[(SCHEMA, "SELECT RAISE(ABORT, 'jobs_intent_never_changes')", "SELECT 1")],
    },
    Wall {
        rule: "R4",
        name: "the rule on starts in decide",
        edits: &[(DECIDE, "if blocks || other.id == start.attempt", "if other.id == start.attempt")],
    },
    Wall {
        rule: "R4",
        name: "the index on open attempts of exclusive jobs",
        edits: &[(SCHEMA, "CREATE UNIQUE INDEX attempts_one_open", "CREATE INDEX attempts_one_open")],
    },
    Wall {
        rule: "R4",
        name: "the index on starting attempts of racing jobs",
        edits: &[(SCHEMA, "CREATE UNIQUE INDEX attempts_one_starting", "CREATE INDEX attempts_one_starting")],
    },
    Wall {
        rule: "R4",
        name: "the trigger beside starting and unknown attempts",
        edits: &[(SCHEMA, "SELECT RAISE(ABORT, 'attempts_none_beside_starting_or_unknown')", "SELECT 1")],
    },
    Wall {
        rule: "R6",
        name: "the fence in decide",
        edits: &[(
            DECIDE,
            "let wins = matches!(job.slot, Slot::Open { .. }) && job.version == attempt.version_read;",
            "let wins = true;",
        )],
    },
    Wall {
        rule: "R6",
        name: "the lock of the reference store",
        edits: &[(
            MEMORY,
            "        let mut state = self.writing()?;
        match state.jobs.get(&job).cloned() {
            Some(record) => {
                let event = state.proved(&record, event);
                state.apply(&record, &event, self.hold.as_ref())",
            "        let found = self.writing()?.jobs.get(&job).cloned();
        if let Some(hold) = &self.hold {
            hold.between(job);
        }
        let mut state = self.lock();
        match found {
            Some(record) => {
                let event = state.proved(&record, event);
                state.apply(&record, &event, None)",
        )],
    },
    Wall {
        rule: "R6",
        name: "BEGIN IMMEDIATE",
        edits: &[(WRITER, "self.execute(\"BEGIN IMMEDIATE\")", "self.execute(\"BEGIN\")")],
    },
    Wall {
        rule: "R6",
        name: "the version in complete.sql",
        edits: &[(COMPLETE, "    AND version = ?2", "    AND ?2 = ?2")],
    },
    Wall {
        rule: "R6",
        name: "the empty slot in complete.sql",
        edits: &[(COMPLETE, "    AND completed_by IS NULL", "")],
    },
    Wall {
        rule: "R6",
        name: "the version in write_job.sql",
        edits: &[(WRITE_JOB, "    AND version = ?2", "    AND ?2 = ?2")],
    },
    Wall {
        rule: "R6",
        name: "the empty slot in write_job.sql",
        edits: &[(WRITE_JOB, "    AND completed_by IS NULL", "")],
    },
    Wall {
        rule: "R6",
        name: "the trigger on the result slot",
        edits: &[(SCHEMA, "SELECT RAISE(ABORT, 'jobs_result_slot_is_written_once')", "SELECT 1")],
    },
    Wall {
        rule: "R6",
        name: "forgetting after a rollback",
        edits: &[(
            WRITER,
            "    fn roll_back(&mut self) {
        self.remembered.forget_all();",
            "    fn roll_back(&mut self) {",
        )],
    },
    Wall {
        rule: "R8",
        name: "the open attempt in write_attempt.sql",
        edits: &[(WRITE_ATTEMPT, "    AND state IN ('starting', 'running', 'unknown')", "")],
    },
    Wall {
        rule: "R8",
        name: "the trigger on ended attempts",
        edits: &[(SCHEMA, "SELECT RAISE(ABORT, 'attempts_ended_never_change')", "SELECT 1")],
    },
    Wall {
        rule: "R9",
        name: "the rule on failover in decide",
        edits: &[(DECIDE, "if !proved && start.trigger", "if false && start.trigger")],
    },
    Wall {
        rule: "R9",
        name: "the check on attempts elsewhere",
        edits: &[(SCHEMA, "by_hand OR provider = primary_provider OR certificate_id IS NOT NULL", "1")],
    },
    Wall {
        rule: "R9",
        name: "the trigger on certificates of attempts",
        edits: &[(CERTIFICATES_SCHEMA, "SELECT RAISE(ABORT, 'attempts_certificate_holds')", "SELECT 1")],
    },
    Wall {
        rule: "R9",
        name: "the trigger on certificates",
        edits: &[(CERTIFICATES_SCHEMA, "SELECT RAISE(ABORT, 'certificates_never_change')", "SELECT 1")],
    },
    Wall {
        rule: "R9",
        name: "the look at a certificate in the transaction of the start",
        edits: &[(CERTIFICATES, "            && certificate.holds(at)", "")],
    },
    Wall {
        rule: "R9",
        name: "the comparison of certificates with the configured contract",
        edits: &[(CERTIFICATES, "contracts.is_none_or(|known|", "contracts.is_none_or(|known| true ||")],
    },
    Wall {
        rule: "R9",
        name: "the run that holds the lease of a contract",
        edits: &[(END_VERIFICATION, "AND run = ?3", "AND ?3 = ?3")],
    },
    Wall {
        rule: "R10",
        name: "synchronous = FULL",
        edits: &[(OPEN, "\"synchronous\", \"FULL\"", "\"synchronous\", \"NORMAL\"")],
    },
    Wall {
        rule: "R10",
        name: "the commit before the answer",
        edits: &[(WRITER, "self.execute(\"COMMIT\")", "self.execute(\"ROLLBACK\")")],
    },
    Wall {
        rule: "",
        name: "the lock beside the file",
        edits: &[(OPEN, "match file.try_lock() {", "match Ok::<(), TryLockError>(()) {")],
    },
    Wall {
        rule: "",
        name: "the refusal of a newer schema",
        edits: &[(OPEN, "Ok(version) if found <= known", "Ok(version) if found <= known + 9")],
    },
    Wall {
        rule: "",
        name: "the refusal of rows that mean nothing",
        edits: &[(ROW, "if job.state() != stored_state {", "if false && job.state() != stored_state {")],
    },
    Wall {
        rule: "",
        name: "the second run without a bad command's traces",
        edits: &[(
            WRITER,
            "} else if self.connection.total_changes() != written {",
            "} else if self.connection.total_changes() < written {",
        )],
    },
];
