//! The walls of the store of many nodes, each with the edit that takes it away.

use super::Wall;

const SCHEMA: &str = "crates/onejob/src/store/postgres/migrations/0001_jobs.sql";
const CERTIFICATES: &str = "crates/onejob/src/store/postgres/migrations/0002_certificates.sql";
const HOLD_CERTIFICATES: &str = "crates/onejob/src/store/postgres/hold_certificates.sql";
const END_VERIFICATION: &str = "crates/onejob/src/store/postgres/end_verification.sql";
const SUBMIT_SQL: &str = "crates/onejob/src/store/postgres/submit.sql";
const COMPLETE: &str = "crates/onejob/src/store/postgres/complete.sql";
const WRITE_JOB: &str = "crates/onejob/src/store/postgres/write_job.sql";
const TOUCH_JOB: &str = "crates/onejob/src/store/postgres/touch_job.sql";
const WRITE_ATTEMPT: &str = "crates/onejob/src/store/postgres/write_attempt.sql";
const LOCK: &str = "crates/onejob/src/store/postgres/lock.sql";
const LEASE: &str = "crates/onejob/src/store/postgres/lease.sql";
const RENEW: &str = "crates/onejob/src/store/postgres/renew.sql";
const FENCE: &str = "crates/onejob/src/store/postgres/fence.sql";
const REAP: &str = "crates/onejob/src/store/postgres/reap.sql";
const CLAIM: &str = "crates/onejob/src/store/postgres/claim.sql";
const BURY: &str = "crates/onejob/src/store/postgres/bury.sql";
const APPLY: &str = "crates/onejob/src/store/postgres/apply.rs";
const WRITE: &str = "crates/onejob/src/store/postgres/write.rs";
const SUBMIT: &str = "crates/onejob/src/store/postgres/submit.rs";
const LINK: &str = "crates/onejob/src/store/postgres/link.rs";
const RESOLVE: &str = "crates/onejob/src/store/postgres/resolve.rs";
const MIGRATE: &str = "crates/onejob/src/store/postgres/schema.rs";

pub(super) const WALLS: &[Wall] = &[
    Wall {
        rule: "R1",
        name: "postgres: the unique key of jobs",
        edits: &[
            (
                SCHEMA,
                "CONSTRAINT jobs_one_per_owner_and_key UNIQUE (owner, idempotency_key)",
                "CONSTRAINT jobs_one_per_owner_and_key CHECK (true)",
            ),
            (SUBMIT_SQL, "ON CONFLICT (owner, idempotency_key) DO NOTHING", "ON CONFLICT DO NOTHING"),
        ],
    },
    Wall {
        rule: "R2",
        name: "postgres: the comparison of fingerprints",
        edits: &[(APPLY, "Some(intent) if intent.fingerprint == submit.intent.fingerprint =>", "Some(_) =>")],
    },
    Wall {
        rule: "R3",
        name: "postgres: the trigger on the intent",
        edits: &[(
            SCHEMA,
            "BEFORE UPDATE OF id, owner, idempotency_key, task, input, provider, fingerprint, fingerprint_version ON",
            "BEFORE UPDATE OF created_at ON",
        )],
    },
    Wall {
        rule: "R4",
        name: "postgres: the index on open attempts of exclusive jobs",
        edits: &[(SCHEMA, "CREATE UNIQUE INDEX attempts_one_open", "CREATE INDEX attempts_one_open")],
    },
    Wall {
        rule: "R4",
        name: "postgres: the index on starting attempts of racing jobs",
        edits: &[(SCHEMA, "CREATE UNIQUE INDEX attempts_one_starting", "CREATE INDEX attempts_one_starting")],
    },
    Wall {
        rule: "R4",
        name: "postgres: the trigger beside starting and unknown attempts",
        edits: &[(SCHEMA, "BEFORE INSERT ON onejob.attempts", "BEFORE UPDATE OF started_at ON onejob.attempts")],
    },
    Wall {
        rule: "R5",
        name: "postgres: the reaper's look at who is alive",
        edits: &[(REAP, "nodes.id = present.node AND nodes.ended_at IS NULL", "false")],
    },
    Wall {
        rule: "R5",
        name: "postgres: the fence's look at how long its own lease was held",
        edits: &[(FENCE, "here.held_since <= onejob.now_ms() - nodes.lease_ms", "true")],
    },
    Wall {
        rule: "R5",
        name: "postgres: a node that was declared dead stays dead",
        edits: &[(RENEW, "    AND ended_at IS NULL\n", "")],
    },
    Wall {
        rule: "R5",
        name: "postgres: the end in lease.sql",
        edits: &[(LEASE, "AND ended_at IS NULL AND lease_until", "AND lease_until")],
    },
    Wall {
        rule: "R5",
        name: "postgres: the time in lease.sql",
        edits: &[(LEASE, "AND lease_until >= onejob.now_ms()", "")],
    },
    Wall {
        rule: "R5",
        name: "postgres: the lease in the transaction of a start",
        edits: &[(WRITE, "if lease.is_some() && answers.last().is_none_or(Vec::is_empty)", "if false")],
    },
    Wall {
        rule: "R5",
        name: "postgres: the lease in the transaction of a post",
        edits: &[(SUBMIT, "if node.is_some() && answers[2].is_empty()", "if false")],
    },
    Wall { rule: "R6", name: "postgres: the lock of the row", edits: &[(LOCK, "FOR UPDATE OF jobs", "")] },
    Wall {
        rule: "R6",
        name: "postgres: the version in complete.sql",
        edits: &[(COMPLETE, "    AND jobs.version = new.version_read\n", "")],
    },
    Wall {
        rule: "R6",
        name: "postgres: the empty slot in complete.sql",
        edits: &[(COMPLETE, "    AND jobs.completed_by IS NULL\n", "")],
    },
    Wall {
        rule: "R6",
        name: "postgres: the revision in complete.sql",
        edits: &[(COMPLETE, "    AND jobs.revision = new.revision_read\n", "")],
    },
    Wall {
        rule: "R6",
        name: "postgres: the version in write_job.sql",
        edits: &[(WRITE_JOB, "    AND jobs.version = new.version_read\n", "")],
    },
    Wall {
        rule: "R6",
        name: "postgres: the empty slot in write_job.sql",
        edits: &[(WRITE_JOB, "    AND jobs.completed_by IS NULL\n", "")],
    },
    Wall {
        rule: "R6",
        name: "postgres: the revision in write_job.sql",
        edits: &[(WRITE_JOB, "    AND jobs.revision = new.revision_read\n", "")],
    },
    Wall {
        rule: "R6",
        name: "postgres: the revision in touch_job.sql",
        edits: &[(TOUCH_JOB, " AND jobs.revision = new.revision_read", "")],
    },
    Wall {
        rule: "R6",
        name: "postgres: the trigger on the result slot",
        edits: &[(SCHEMA, "BEFORE UPDATE OF completed_by, result ON", "BEFORE UPDATE OF created_at ON")],
    },
    Wall {
        rule: "R6",
        name: "postgres: an answer without a write stands on rows that are held",
        edits: &[(
            APPLY,
            "if self.is_held(job) { Ok(Placed::Answered(outcome)) }",
            "if true { Ok(Placed::Answered(outcome)) }",
        )],
    },
    Wall {
        rule: "R6",
        name: "postgres: a completion whose commit gave no answer is read back",
        edits: &[(RESOLVE, "Ok(now) => return told_by(&now, written),", "Ok(_) => return Some(false),")],
    },
    Wall {
        rule: "R1",
        name: "postgres: a post whose commit gave no answer is looked for",
        edits: &[(
            SUBMIT,
            "                ambiguous = Some(why);",
            "                return failed(orders, StoreError::OutcomeUnknown(why));",
        )],
    },
    Wall {
        rule: "R8",
        name: "postgres: the open attempt in write_attempt.sql",
        edits: &[(WRITE_ATTEMPT, "    AND attempts.state IN ('starting', 'running', 'unknown')\n", "")],
    },
    Wall {
        rule: "R8",
        name: "postgres: the trigger on ended attempts",
        edits: &[(SCHEMA, "BEFORE UPDATE ON onejob.attempts", "BEFORE UPDATE OF started_at ON onejob.attempts")],
    },
    Wall {
        rule: "R9",
        name: "postgres: the check on attempts elsewhere",
        edits: &[(SCHEMA, "by_hand OR provider = primary_provider OR certificate_id IS NOT NULL", "true")],
    },
    Wall {
        rule: "R9",
        name: "postgres: the trigger on certificates of attempts",
        edits: &[(CERTIFICATES, "FOR EACH ROW WHEN (NEW.certificate_id IS NOT NULL)", "FOR EACH ROW WHEN (false)")],
    },
    Wall {
        rule: "R9",
        name: "postgres: the trigger on certificates",
        edits: &[(CERTIFICATES, "BEFORE UPDATE ON onejob.certificates", "BEFORE UPDATE OF id ON onejob.certificates")],
    },
    Wall {
        rule: "R9",
        name: "postgres: the certificate that is held until its attempt is committed",
        edits: &[(HOLD_CERTIFICATES, "FOR SHARE", "")],
    },
    Wall {
        rule: "R9",
        name: "postgres: the run that holds the lease of a contract",
        edits: &[(END_VERIFICATION, "AND run = $3", "AND $3 = $3")],
    },
    Wall {
        rule: "R10",
        name: "postgres: the durable commit, whatever the server's default",
        edits: &[(LINK, "(\"synchronous_commit\", \"on\")", "(\"synchronous_commit\", \"off\")")],
    },
    Wall {
        rule: "R10",
        name: "postgres: the commit before the answer",
        edits: &[(LINK, "client.batch_execute(\"COMMIT\")", "client.batch_execute(\"ROLLBACK\")")],
    },
    Wall {
        rule: "R12",
        name: "postgres: the second look before a job is buried",
        edits: &[(BURY, "WHERE jobs.state IN ('succeeded', 'failed', 'cancelled')", "WHERE true")],
    },
    Wall {
        rule: "R12",
        name: "postgres: the look for tombstones in the transaction of a post",
        edits: &[(SUBMIT, "if !tombstones.is_empty() {", "if tombstones.len() > 1_000_000 {")],
    },
    Wall {
        rule: "–",
        name: "postgres: what another node is claiming is passed over",
        edits: &[(CLAIM, "    FOR UPDATE OF jobs SKIP LOCKED\n", "")],
    },
    Wall {
        rule: "–",
        name: "postgres: the refusal of a newer schema",
        edits: &[(MIGRATE, "if found > known {", "if found > known + 9_000 {")],
    },
    Wall {
        rule: "–",
        name: "postgres: the splitting of a batch with a bad row",
        edits: &[(SUBMIT, "Fault::Row(_) if orders.len() > 1 =>", "Fault::Row(_) if orders.len() > 1_000 =>")],
    },
];
