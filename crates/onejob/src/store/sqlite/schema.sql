-- The schema after all migrations, as SQLite holds it. A test keeps it true.

CREATE TABLE verifications (
    task             TEXT    NOT NULL,
    provider         TEXT    NOT NULL,
    run              BLOB,
    running_since    INTEGER,
    lease_until      INTEGER,
    last_run         BLOB,
    contract_digest  BLOB,
    started_at       INTEGER,
    ended_at         INTEGER,
    passed           INTEGER,
    report           TEXT,
    certificate_id   BLOB,
    PRIMARY KEY (task, provider),
    CONSTRAINT verifications_run_has_a_lease CHECK (
        (run IS NULL) = (running_since IS NULL) AND (run IS NULL) = (lease_until IS NULL)
    ),
    CONSTRAINT verifications_last_is_whole CHECK (
        (last_run IS NULL) = (contract_digest IS NULL)
        AND (last_run IS NULL) = (started_at IS NULL)
        AND (last_run IS NULL) = (ended_at IS NULL)
        AND (last_run IS NULL) = (passed IS NULL)
        AND (last_run IS NULL) = (report IS NULL)
    )
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (
    owner            TEXT    NOT NULL,
    idempotency_key  TEXT    NOT NULL,
    job_id           BLOB    NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled')),
    ended_at         INTEGER NOT NULL,
    PRIMARY KEY (owner, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE notices (
    seq         INTEGER PRIMARY KEY,
    job_id      BLOB    NOT NULL,
    attempt_id  BLOB,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    detail      TEXT    NOT NULL
) STRICT;

CREATE INDEX notices_of_job ON notices (job_id);

CREATE TABLE jobs (
    id                   BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    owner                TEXT    NOT NULL,
    idempotency_key      TEXT    NOT NULL,
    task                 TEXT,
    provider             TEXT,
    fingerprint_version  INTEGER,
    fingerprint          BLOB,
    effects              TEXT    NOT NULL CHECK (effects IN ('exclusive', 'racing')),
    priority             INTEGER NOT NULL,
    run_at               INTEGER,
    deadline             INTEGER,
    state                TEXT    NOT NULL
        CHECK (state IN ('queued', 'running', 'unknown', 'succeeded', 'failed', 'cancelled')),
    version              INTEGER NOT NULL,
    tries_from           INTEGER NOT NULL,
    next_provider        TEXT,
    next_primary         TEXT,
    next_certificate     BLOB,
    due_at               INTEGER,
    completed_by         BLOB,
    error_class          TEXT,
    error_status         INTEGER,
    error_message        TEXT,
    error_failover       TEXT,
    duplicates           INTEGER NOT NULL,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    metadata             TEXT    NOT NULL,
    input                TEXT,
    result               TEXT,
    CONSTRAINT jobs_plan_exactly_while_queued CHECK (
        (state = 'queued') = (next_provider IS NOT NULL)
        AND (next_provider IS NULL) = (next_primary IS NULL)
        AND (next_provider IS NULL) = (due_at IS NULL)
    ),
    CONSTRAINT jobs_result_exactly_when_succeeded CHECK (
        (state = 'succeeded') = (completed_by IS NOT NULL)
        AND (completed_by IS NULL) = (result IS NULL)
    ),
    CONSTRAINT jobs_error_exactly_when_failed CHECK ((state = 'failed') = (error_class IS NOT NULL)),
    -- Absent as a whole: the key was cancelled before its post arrived.
    CONSTRAINT jobs_intent_is_whole CHECK (
        (task IS NULL) = (input IS NULL)
        AND (task IS NULL) = (fingerprint IS NULL)
        AND (task IS NULL) = (fingerprint_version IS NULL)
        AND (task IS NOT NULL OR state = 'cancelled')
    )
) STRICT;

CREATE INDEX jobs_by_rarer_state ON jobs (state, id) WHERE state IN ('queued', 'unknown', 'failed', 'cancelled');

CREATE INDEX jobs_line ON jobs (next_provider, priority DESC, due_at, id) WHERE state = 'queued';

CREATE UNIQUE INDEX jobs_one_per_owner_and_key ON jobs (owner, idempotency_key);

CREATE INDEX jobs_queued_deadlines ON jobs (deadline, id) WHERE state = 'queued' AND deadline IS NOT NULL;

CREATE TRIGGER jobs_intent_never_changes
BEFORE UPDATE OF id, owner, idempotency_key, task, input, provider, fingerprint, fingerprint_version ON jobs
WHEN OLD.id IS NOT NEW.id
    OR OLD.owner IS NOT NEW.owner
    OR OLD.idempotency_key IS NOT NEW.idempotency_key
    OR (
        OLD.task IS NOT NULL
        AND (
            OLD.task IS NOT NEW.task
            OR OLD.input IS NOT NEW.input
            OR OLD.provider IS NOT NEW.provider
            OR OLD.fingerprint IS NOT NEW.fingerprint
            OR OLD.fingerprint_version IS NOT NEW.fingerprint_version
        )
    )
BEGIN
    SELECT RAISE(ABORT, 'jobs_intent_never_changes');
END;

CREATE TRIGGER jobs_result_slot_is_written_once
BEFORE UPDATE OF completed_by, result ON jobs
WHEN OLD.completed_by IS NOT NULL
    AND (OLD.completed_by IS NOT NEW.completed_by OR OLD.result IS NOT NEW.result)
BEGIN
    SELECT RAISE(ABORT, 'jobs_result_slot_is_written_once');
END;

CREATE TABLE certificates (
    id                 BLOB    NOT NULL CHECK (length(id) = 16),
    task               TEXT    NOT NULL,
    provider           TEXT    NOT NULL,
    contract_digest    BLOB    NOT NULL CHECK (length(contract_digest) = 32),
    model              TEXT,
    detail             TEXT    NOT NULL,
    issued_at          INTEGER NOT NULL,
    valid_until        INTEGER NOT NULL,
    suspended_at       INTEGER,
    suspended_because  TEXT,
    PRIMARY KEY (id),
    CONSTRAINT certificates_suspended_says_why CHECK ((suspended_at IS NULL) = (suspended_because IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX certificates_not_suspended ON certificates (task, provider, contract_digest, id)
WHERE suspended_at IS NULL;

CREATE TRIGGER certificates_never_change
BEFORE UPDATE ON certificates
WHEN OLD.suspended_at IS NOT NULL
    OR OLD.id IS NOT NEW.id
    OR OLD.task IS NOT NEW.task
    OR OLD.provider IS NOT NEW.provider
    OR OLD.contract_digest IS NOT NEW.contract_digest
    OR OLD.model IS NOT NEW.model
    OR OLD.detail IS NOT NEW.detail
    OR OLD.issued_at IS NOT NEW.issued_at
    OR OLD.valid_until IS NOT NEW.valid_until
BEGIN
    SELECT RAISE(ABORT, 'certificates_never_change');
END;

CREATE TABLE attempts (
    id                BLOB    NOT NULL CHECK (length(id) = 16),
    job_id            BLOB    NOT NULL,
    number            INTEGER NOT NULL,
    task              TEXT    NOT NULL,
    provider          TEXT    NOT NULL,
    primary_provider  TEXT    NOT NULL,
    by_hand           INTEGER NOT NULL,
    exclusive         INTEGER NOT NULL,
    certificate_id    BLOB,
    node              BLOB    NOT NULL,
    version_read      INTEGER NOT NULL,
    started_at        INTEGER NOT NULL,
    state             TEXT    NOT NULL CHECK (state IN (
        'starting', 'running', 'unknown', 'succeeded', 'failed', 'superseded', 'cancelled', 'abandoned'
    )),
    handle            TEXT,
    model             TEXT,
    input_tokens      INTEGER,
    output_tokens     INTEGER,
    cause             TEXT,
    unknown_since     INTEGER,
    finished_at       INTEGER,
    failure_class     TEXT,
    failure_status    INTEGER,
    failure_message   TEXT,
    superseded_by     BLOB,
    never_sent        INTEGER,
    resolved_by       TEXT,
    resolved_at       INTEGER,
    resolved_reason   TEXT,
    PRIMARY KEY (job_id, number),
    -- R9.
    CONSTRAINT attempts_elsewhere_only_with_certificate CHECK (
        by_hand OR provider = primary_provider OR certificate_id IS NOT NULL
    ),
    CONSTRAINT attempts_unknown_says_why CHECK (
        (state = 'unknown') = (cause IS NOT NULL) AND (cause IS NULL) = (unknown_since IS NULL)
    ),
    CONSTRAINT attempts_ended_says_when CHECK (
        (state IN ('starting', 'running', 'unknown')) = (finished_at IS NULL)
    ),
    CONSTRAINT attempts_failed_says_how CHECK ((state = 'failed') = (failure_class IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX attempts_by_id ON attempts (id);

CREATE INDEX attempts_live_by_node ON attempts (node, id) WHERE state IN ('starting', 'running');

CREATE UNIQUE INDEX attempts_one_open_per_exclusive_job ON attempts (job_id)
WHERE exclusive AND state IN ('starting', 'running', 'unknown');

CREATE UNIQUE INDEX attempts_one_starting_per_job ON attempts (job_id)
WHERE NOT exclusive AND state = 'starting';

CREATE INDEX attempts_unknown_by_id ON attempts (id) WHERE state = 'unknown';

CREATE INDEX attempts_unknown_by_task ON attempts (task, unknown_since, id) WHERE state = 'unknown';

CREATE TRIGGER attempts_certificate_holds
BEFORE INSERT ON attempts
WHEN NEW.certificate_id IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM certificates
        WHERE id = NEW.certificate_id AND task = NEW.task AND provider = NEW.provider
            AND suspended_at IS NULL AND valid_until > NEW.started_at
    )
BEGIN
    SELECT RAISE(ABORT, 'attempts_certificate_holds');
END;

CREATE TRIGGER attempts_ended_never_change
BEFORE UPDATE ON attempts
WHEN OLD.state NOT IN ('starting', 'running', 'unknown')
BEGIN
    SELECT RAISE(ABORT, 'attempts_ended_never_change');
END;

CREATE TRIGGER attempts_none_beside_starting_or_unknown
BEFORE INSERT ON attempts
WHEN EXISTS (SELECT 1 FROM attempts WHERE job_id = NEW.job_id AND state IN ('starting', 'unknown'))
BEGIN
    SELECT RAISE(ABORT, 'attempts_none_beside_starting_or_unknown');
END;
