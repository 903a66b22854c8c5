-- The schema after all migrations, as PostgreSQL describes it. A test keeps it true.

CREATE TABLE onejob.attempts (
    id                   uuid NOT NULL,
    job_id               uuid NOT NULL,
    number               bigint NOT NULL,
    task                 text COLLATE "C" NOT NULL,
    provider             text NOT NULL,
    primary_provider     text NOT NULL,
    by_hand              boolean NOT NULL,
    exclusive            boolean NOT NULL,
    certificate_id       uuid,
    node                 uuid NOT NULL,
    version_read         bigint NOT NULL,
    started_at           bigint NOT NULL,
    state                text NOT NULL,
    handle               text,
    model                text,
    input_tokens         bigint,
    output_tokens        bigint,
    cause                text,
    unknown_since        bigint,
    finished_at          bigint,
    failure_class        text,
    failure_status       bigint,
    failure_message      text,
    superseded_by        uuid,
    never_sent           boolean,
    resolved_by          text,
    resolved_at          bigint,
    resolved_reason      text,
    CONSTRAINT attempts_by_id UNIQUE (id),
    CONSTRAINT attempts_elsewhere_only_with_certificate CHECK ((by_hand OR (provider = primary_provider) OR (certificate_id IS NOT NULL))),
    CONSTRAINT attempts_ended_says_when CHECK (((state = ANY (ARRAY['starting'::text, 'running'::text, 'unknown'::text])) = (finished_at IS NULL))),
    CONSTRAINT attempts_failed_says_how CHECK (((state = 'failed'::text) = (failure_class IS NOT NULL))),
    CONSTRAINT attempts_pkey PRIMARY KEY (job_id, number),
    CONSTRAINT attempts_state_is_known CHECK ((state = ANY (ARRAY['starting'::text, 'running'::text, 'unknown'::text, 'succeeded'::text, 'failed'::text, 'superseded'::text, 'cancelled'::text, 'abandoned'::text]))),
    CONSTRAINT attempts_unknown_says_why CHECK ((((state = 'unknown'::text) = (cause IS NOT NULL)) AND ((cause IS NULL) = (unknown_since IS NULL))))
);

CREATE INDEX attempts_live_by_node ON onejob.attempts USING btree (node, id) WHERE (state = ANY (ARRAY['starting'::text, 'running'::text]));

CREATE UNIQUE INDEX attempts_one_open_per_exclusive_job ON onejob.attempts USING btree (job_id) WHERE (exclusive AND (state = ANY (ARRAY['starting'::text, 'running'::text, 'unknown'::text])));

CREATE UNIQUE INDEX attempts_one_starting_per_job ON onejob.attempts USING btree (job_id) WHERE ((NOT exclusive) AND (state = 'starting'::text));

CREATE INDEX attempts_unknown_by_id ON onejob.attempts USING btree (id) WHERE (state = 'unknown'::text);

CREATE INDEX attempts_unknown_by_job ON onejob.attempts USING btree (job_id) WHERE (state = 'unknown'::text);

CREATE INDEX attempts_unknown_by_task ON onejob.attempts USING btree (task, unknown_since, id) WHERE (state = 'unknown'::text);

CREATE TRIGGER attempts_certificate_holds BEFORE INSERT ON attempts FOR EACH ROW WHEN (new.certificate_id IS NOT NULL) EXECUTE FUNCTION refuse_without_a_certificate_that_holds();

CREATE TRIGGER attempts_ended_never_change BEFORE UPDATE ON attempts FOR EACH ROW WHEN (old.state <> ALL (ARRAY['starting'::text, 'running'::text, 'unknown'::text])) EXECUTE FUNCTION refuse();

CREATE TRIGGER attempts_none_beside_starting_or_unknown BEFORE INSERT ON attempts FOR EACH ROW WHEN (NOT new.exclusive) EXECUTE FUNCTION refuse_beside_starting_or_unknown();

CREATE TABLE onejob.certificates (
    id                   uuid NOT NULL,
    task                 text COLLATE "C" NOT NULL,
    provider             text COLLATE "C" NOT NULL,
    contract_digest      bytea NOT NULL,
    model                text,
    detail               text NOT NULL,
    issued_at            bigint NOT NULL,
    valid_until          bigint NOT NULL,
    suspended_at         bigint,
    suspended_because    text,
    CONSTRAINT certificates_digest_is_whole CHECK ((length(contract_digest) = 32)),
    CONSTRAINT certificates_pkey PRIMARY KEY (id),
    CONSTRAINT certificates_suspended_says_why CHECK (((suspended_at IS NULL) = (suspended_because IS NULL)))
);

CREATE INDEX certificates_not_suspended ON onejob.certificates USING btree (task, provider, contract_digest, id DESC) WHERE (suspended_at IS NULL);

CREATE TRIGGER certificates_never_change BEFORE UPDATE ON certificates FOR EACH ROW WHEN (old.suspended_at IS NOT NULL OR old.id IS DISTINCT FROM new.id OR old.task IS DISTINCT FROM new.task OR old.provider IS DISTINCT FROM new.provider OR old.contract_digest IS DISTINCT FROM new.contract_digest OR old.model IS DISTINCT FROM new.model OR old.detail IS DISTINCT FROM new.detail OR old.issued_at IS DISTINCT FROM new.issued_at OR old.valid_until IS DISTINCT FROM new.valid_until) EXECUTE FUNCTION refuse();

CREATE TABLE onejob.jobs (
    id                   uuid NOT NULL,
    owner                text COLLATE "C" NOT NULL,
    idempotency_key      text COLLATE "C" NOT NULL,
    task                 text,
    provider             text,
    fingerprint_version  bigint,
    fingerprint          bytea,
    effects              text NOT NULL,
    priority             bigint NOT NULL,
    run_at               bigint,
    deadline             bigint,
    state                text NOT NULL,
    version              bigint NOT NULL,
    revision             bigint NOT NULL,
    tries_from           bigint NOT NULL,
    next_provider        text,
    next_primary         text,
    next_certificate     uuid,
    due_at               bigint,
    completed_by         uuid,
    error_class          text,
    error_status         bigint,
    error_message        text,
    error_failover       text,
    duplicates           bigint NOT NULL,
    created_at           bigint NOT NULL,
    updated_at           bigint NOT NULL,
    metadata             text NOT NULL,
    input                text,
    result               text,
    without_result       text GENERATED ALWAYS AS (
CASE
    WHEN (state = ANY (ARRAY['failed'::text, 'cancelled'::text])) THEN state
    ELSE NULL::text
END) STORED,
    CONSTRAINT jobs_effects_are_known CHECK ((effects = ANY (ARRAY['exclusive'::text, 'racing'::text]))),
    CONSTRAINT jobs_error_exactly_when_failed CHECK (((state = 'failed'::text) = (error_class IS NOT NULL))),
    CONSTRAINT jobs_intent_is_whole CHECK ((((task IS NULL) = (input IS NULL)) AND ((task IS NULL) = (fingerprint IS NULL)) AND ((task IS NULL) = (fingerprint_version IS NULL)) AND ((task IS NOT NULL) OR (state = 'cancelled'::text)))),
    CONSTRAINT jobs_one_per_owner_and_key UNIQUE (owner, idempotency_key),
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_plan_exactly_while_queued CHECK ((((state = 'queued'::text) = (next_provider IS NOT NULL)) AND ((next_provider IS NULL) = (next_primary IS NULL)) AND ((next_provider IS NULL) = (due_at IS NULL)))),
    CONSTRAINT jobs_result_exactly_when_succeeded CHECK ((((state = 'succeeded'::text) = (completed_by IS NOT NULL)) AND ((completed_by IS NULL) = (result IS NULL)))),
    CONSTRAINT jobs_state_is_known CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'unknown'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text])))
) WITH (fillfactor=50);

CREATE INDEX jobs_without_result ON onejob.jobs USING btree (without_result, id) WHERE (without_result IS NOT NULL);

CREATE TRIGGER jobs_intent_never_changes BEFORE UPDATE OF id, owner, idempotency_key, task, input, provider, fingerprint, fingerprint_version ON jobs FOR EACH ROW WHEN (old.id IS DISTINCT FROM new.id OR old.owner IS DISTINCT FROM new.owner OR old.idempotency_key IS DISTINCT FROM new.idempotency_key OR old.task IS NOT NULL AND (old.task IS DISTINCT FROM new.task OR old.input IS DISTINCT FROM new.input OR old.provider IS DISTINCT FROM new.provider OR old.fingerprint IS DISTINCT FROM new.fingerprint OR old.fingerprint_version IS DISTINCT FROM new.fingerprint_version)) EXECUTE FUNCTION refuse();

CREATE TRIGGER jobs_result_slot_is_written_once BEFORE UPDATE OF completed_by, result ON jobs FOR EACH ROW WHEN (old.completed_by IS NOT NULL AND (old.completed_by IS DISTINCT FROM new.completed_by OR old.result IS DISTINCT FROM new.result)) EXECUTE FUNCTION refuse();

CREATE TABLE onejob.nodes (
    id                   uuid NOT NULL,
    name                 text NOT NULL,
    entered_at           bigint NOT NULL,
    held_since           bigint NOT NULL,
    lease_ms             bigint NOT NULL,
    lease_until          bigint NOT NULL,
    ended_at             bigint,
    CONSTRAINT nodes_pkey PRIMARY KEY (id)
) WITH (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=200);

CREATE TABLE onejob.notices (
    job_id               uuid NOT NULL,
    id                   uuid NOT NULL,
    attempt_id           uuid,
    at                   bigint NOT NULL,
    kind                 text NOT NULL,
    detail               text NOT NULL,
    CONSTRAINT notices_pkey PRIMARY KEY (job_id, id)
);

CREATE TABLE onejob.queue (
    job_id               uuid NOT NULL,
    provider             text COLLATE "C" NOT NULL,
    priority             bigint NOT NULL,
    due_at               bigint NOT NULL,
    deadline             bigint,
    CONSTRAINT queue_pkey PRIMARY KEY (job_id)
) WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_threshold=1000);

CREATE INDEX queue_deadlines ON onejob.queue USING btree (deadline, job_id) WHERE (deadline IS NOT NULL);

CREATE INDEX queue_line ON onejob.queue USING btree (provider, priority DESC, due_at, job_id);

CREATE TABLE onejob.schema_version (
    version              bigint NOT NULL,
    name                 text NOT NULL,
    applied_at           timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT schema_version_pkey PRIMARY KEY (version)
);

CREATE TABLE onejob.tombstones (
    owner                text COLLATE "C" NOT NULL,
    idempotency_key      text COLLATE "C" NOT NULL,
    job_id               uuid NOT NULL,
    state                text NOT NULL,
    ended_at             bigint NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (owner, idempotency_key),
    CONSTRAINT tombstones_state_is_terminal CHECK ((state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text])))
);

CREATE TABLE onejob.verifications (
    task                 text COLLATE "C" NOT NULL,
    provider             text COLLATE "C" NOT NULL,
    run                  uuid,
    running_since        bigint,
    lease_until          bigint,
    last_run             uuid,
    contract_digest      bytea,
    started_at           bigint,
    ended_at             bigint,
    passed               boolean,
    report               text,
    certificate_id       uuid,
    CONSTRAINT verifications_last_is_whole CHECK ((((last_run IS NULL) = (contract_digest IS NULL)) AND ((last_run IS NULL) = (started_at IS NULL)) AND ((last_run IS NULL) = (ended_at IS NULL)) AND ((last_run IS NULL) = (passed IS NULL)) AND ((last_run IS NULL) = (report IS NULL)))),
    CONSTRAINT verifications_pkey PRIMARY KEY (task, provider),
    CONSTRAINT verifications_run_has_a_lease CHECK ((((run IS NULL) = (running_since IS NULL)) AND ((run IS NULL) = (lease_until IS NULL))))
);

CREATE OR REPLACE FUNCTION onejob.now_ms()
 RETURNS bigint
 LANGUAGE sql
 STABLE
AS $function$SELECT floor(extract(epoch FROM now()) * 1000)::bigint$function$;

CREATE OR REPLACE FUNCTION onejob.refuse()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION USING
        MESSAGE = TG_NAME,
        ERRCODE = 'integrity_constraint_violation',
        CONSTRAINT = TG_NAME,
        TABLE = TG_TABLE_NAME;
END
$function$;

CREATE OR REPLACE FUNCTION onejob.refuse_beside_starting_or_unknown()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION onejob.refuse_without_a_certificate_that_holds()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM onejob.certificates
        WHERE id = NEW.certificate_id AND task = NEW.task AND provider = NEW.provider
            AND suspended_at IS NULL AND valid_until > NEW.started_at
    ) THEN
        RAISE EXCEPTION USING
            MESSAGE = TG_NAME,
            ERRCODE = 'integrity_constraint_violation',
            CONSTRAINT = TG_NAME,
            TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$function$;
