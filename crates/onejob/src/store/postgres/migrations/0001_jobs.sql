-- All times are milliseconds since the Unix epoch. Texts that stand in an index are compared as bytes.
CREATE FUNCTION onejob.now_ms() RETURNS bigint LANGUAGE sql STABLE AS
'SELECT floor(extract(epoch FROM now()) * 1000)::bigint';

-- One row per intent. No index stands on a column that changes while a job goes from running to
-- succeeded, so that this update stays on its page and touches no index; the page has room for it.
CREATE TABLE onejob.jobs (
    id                   uuid    NOT NULL,
    owner                text    COLLATE "C" NOT NULL,
    idempotency_key      text    COLLATE "C" NOT NULL,
    task                 text,
    provider             text,
    fingerprint_version  bigint,
    fingerprint          bytea,
    effects              text    NOT NULL,
    priority             bigint  NOT NULL,
    run_at               bigint,
    deadline             bigint,
    state                text    NOT NULL,
    version              bigint  NOT NULL,
    -- Raised by every write of the job or of one of its attempts: what a node remembers of a job is as
    -- good as the rows while this number is the same.
    revision             bigint  NOT NULL,
    tries_from           bigint  NOT NULL,
    next_provider        text,
    next_primary         text,
    next_certificate     uuid,
    due_at               bigint,
    completed_by         uuid,
    error_class          text,
    error_status         bigint,
    error_message        text,
    error_failover       text,
    duplicates           bigint  NOT NULL,
    created_at           bigint  NOT NULL,
    updated_at           bigint  NOT NULL,
    metadata             text    NOT NULL,
    input                text,
    result               text,
    -- For lists. Absent in all other states, so that the common life of a job does not write it.
    without_result       text    GENERATED ALWAYS AS (CASE WHEN state IN ('failed', 'cancelled') THEN state END) STORED,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    -- R1.
    CONSTRAINT jobs_one_per_owner_and_key UNIQUE (owner, idempotency_key),
    CONSTRAINT jobs_effects_are_known CHECK (effects IN ('exclusive', 'racing')),
    CONSTRAINT jobs_state_is_known CHECK (
        state IN ('queued', 'running', 'unknown', 'succeeded', 'failed', 'cancelled')
    ),
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
) WITH (fillfactor = 50);

CREATE INDEX jobs_without_result ON onejob.jobs (without_result, id) WHERE without_result IS NOT NULL;

-- The one thing that a trigger does here: it says no, by its own name.
CREATE FUNCTION onejob.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        MESSAGE = TG_NAME,
        ERRCODE = 'integrity_constraint_violation',
        CONSTRAINT = TG_NAME,
        TABLE = TG_TABLE_NAME;
END
$$;

-- R3. The one change allowed is from no intent at all to an intent.
CREATE TRIGGER jobs_intent_never_changes
BEFORE UPDATE OF id, owner, idempotency_key, task, input, provider, fingerprint, fingerprint_version ON onejob.jobs
FOR EACH ROW WHEN (
    OLD.id IS DISTINCT FROM NEW.id
    OR OLD.owner IS DISTINCT FROM NEW.owner
    OR OLD.idempotency_key IS DISTINCT FROM NEW.idempotency_key
    OR (
        OLD.task IS NOT NULL
        AND (
            OLD.task IS DISTINCT FROM NEW.task
            OR OLD.input IS DISTINCT FROM NEW.input
            OR OLD.provider IS DISTINCT FROM NEW.provider
            OR OLD.fingerprint IS DISTINCT FROM NEW.fingerprint
            OR OLD.fingerprint_version IS DISTINCT FROM NEW.fingerprint_version
        )
    )
)
EXECUTE FUNCTION onejob.refuse();

-- R6.
CREATE TRIGGER jobs_result_slot_is_written_once
BEFORE UPDATE OF completed_by, result ON onejob.jobs
FOR EACH ROW WHEN (
    OLD.completed_by IS NOT NULL
    AND (OLD.completed_by IS DISTINCT FROM NEW.completed_by OR OLD.result IS DISTINCT FROM NEW.result)
)
EXECUTE FUNCTION onejob.refuse();

-- The line at each provider, in the order in which it is served: a row exactly while its job is
-- queued, written by whoever holds the job's row. A job that starts in the commit that makes it never
-- stands here. A table of its own: it stays as small as the backlog, and is cleaned as often as it needs.
CREATE TABLE onejob.queue (
    job_id    uuid    NOT NULL,
    provider  text    COLLATE "C" NOT NULL,
    priority  bigint  NOT NULL,
    due_at    bigint  NOT NULL,
    deadline  bigint,
    CONSTRAINT queue_pkey PRIMARY KEY (job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE INDEX queue_line ON onejob.queue (provider, priority DESC, due_at, job_id);
CREATE INDEX queue_deadlines ON onejob.queue (deadline, job_id) WHERE deadline IS NOT NULL;

-- One row per try. No foreign key: an attempt is only ever written beside its job in one
-- transaction, no job is ever deleted alone, and the check would cost a look-up per attempt.
CREATE TABLE onejob.attempts (
    id                uuid     NOT NULL,
    job_id            uuid     NOT NULL,
    number            bigint   NOT NULL,
    task              text     COLLATE "C" NOT NULL,
    provider          text     NOT NULL,
    primary_provider  text     NOT NULL,
    by_hand           boolean  NOT NULL,
    exclusive         boolean  NOT NULL,
    certificate_id    uuid,
    node              uuid     NOT NULL,
    version_read      bigint   NOT NULL,
    started_at        bigint   NOT NULL,
    state             text     NOT NULL,
    handle            text,
    model             text,
    input_tokens      bigint,
    output_tokens     bigint,
    cause             text,
    unknown_since     bigint,
    finished_at       bigint,
    failure_class     text,
    failure_status    bigint,
    failure_message   text,
    superseded_by     uuid,
    never_sent        boolean,
    resolved_by       text,
    resolved_at       bigint,
    resolved_reason   text,
    CONSTRAINT attempts_pkey PRIMARY KEY (job_id, number),
    CONSTRAINT attempts_by_id UNIQUE (id),
    CONSTRAINT attempts_state_is_known CHECK (state IN (
        'starting', 'running', 'unknown', 'succeeded', 'failed', 'superseded', 'cancelled', 'abandoned'
    )),
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
);

-- R4, exclusive tasks: it also holds "one starting" and "none beside an unknown one".
CREATE UNIQUE INDEX attempts_one_open_per_exclusive_job ON onejob.attempts (job_id)
WHERE exclusive AND state IN ('starting', 'running', 'unknown');

-- R4, racing tasks: two running attempts may both become unknown, so only `starting` is unique.
CREATE UNIQUE INDEX attempts_one_starting_per_job ON onejob.attempts (job_id)
WHERE NOT exclusive AND state = 'starting';

-- R4, racing tasks: none beside an unknown one either. Two that insert at once are kept apart by the
-- job's row, which both hold.
CREATE FUNCTION onejob.refuse_beside_starting_or_unknown() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM onejob.attempts WHERE job_id = NEW.job_id AND state IN ('starting', 'unknown')
    ) THEN
        RAISE EXCEPTION USING
            MESSAGE = TG_NAME,
            ERRCODE = 'integrity_constraint_violation',
            CONSTRAINT = TG_NAME,
            TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER attempts_none_beside_starting_or_unknown
BEFORE INSERT ON onejob.attempts
FOR EACH ROW WHEN (NOT NEW.exclusive)
EXECUTE FUNCTION onejob.refuse_beside_starting_or_unknown();

-- R8.
CREATE TRIGGER attempts_ended_never_change
BEFORE UPDATE ON onejob.attempts
FOR EACH ROW WHEN (OLD.state NOT IN ('starting', 'running', 'unknown'))
EXECUTE FUNCTION onejob.refuse();

-- What a dead node left behind.
CREATE INDEX attempts_live_by_node ON onejob.attempts (node, id) WHERE state IN ('starting', 'running');

-- What waits for evidence: by age for the policy, by birth and by job for lists. Written only when an
-- attempt becomes unknown.
CREATE INDEX attempts_unknown_by_task ON onejob.attempts (task, unknown_since, id) WHERE state = 'unknown';
CREATE INDEX attempts_unknown_by_id ON onejob.attempts (id) WHERE state = 'unknown';
CREATE INDEX attempts_unknown_by_job ON onejob.attempts (job_id) WHERE state = 'unknown';

-- Noteworthy facts. Never a payload. The id is a UUIDv7 of the node that wrote it: its order is the order.
CREATE TABLE onejob.notices (
    job_id      uuid    NOT NULL,
    id          uuid    NOT NULL,
    attempt_id  uuid,
    at          bigint  NOT NULL,
    kind        text    NOT NULL,
    detail      text    NOT NULL,
    CONSTRAINT notices_pkey PRIMARY KEY (job_id, id)
);

-- What stays of a pruned job: its key, for ever (R12).
CREATE TABLE onejob.tombstones (
    owner            text    COLLATE "C" NOT NULL,
    idempotency_key  text    COLLATE "C" NOT NULL,
    job_id           uuid    NOT NULL,
    state            text    NOT NULL,
    ended_at         bigint  NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (owner, idempotency_key),
    CONSTRAINT tombstones_state_is_terminal CHECK (state IN ('succeeded', 'failed', 'cancelled'))
);

-- Running processes. A row is renewed every few seconds, in place. One whose lease ended is alive again
-- if it comes back before somebody declares it dead; after that never.
CREATE TABLE onejob.nodes (
    id           uuid    NOT NULL,
    name         text    NOT NULL,
    entered_at   bigint  NOT NULL,
    -- Since when its lease has had no gap.
    held_since   bigint  NOT NULL,
    lease_ms     bigint  NOT NULL,
    lease_until  bigint  NOT NULL,
    ended_at     bigint,
    CONSTRAINT nodes_pkey PRIMARY KEY (id)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
