-- Passes of a task's contract at a provider.
CREATE TABLE onejob.certificates (
    id                 uuid    NOT NULL,
    task               text    COLLATE "C" NOT NULL,
    provider           text    COLLATE "C" NOT NULL,
    contract_digest    bytea   NOT NULL,
    model              text,
    detail             text    NOT NULL,
    issued_at          bigint  NOT NULL,
    valid_until        bigint  NOT NULL,
    suspended_at       bigint,
    suspended_because  text,
    CONSTRAINT certificates_pkey PRIMARY KEY (id),
    CONSTRAINT certificates_digest_is_whole CHECK (length(contract_digest) = 32),
    CONSTRAINT certificates_suspended_says_why CHECK ((suspended_at IS NULL) = (suspended_because IS NULL))
);

CREATE INDEX certificates_not_suspended ON onejob.certificates (task, provider, contract_digest, id DESC)
WHERE suspended_at IS NULL;

-- The one change allowed is to be suspended, once.
CREATE TRIGGER certificates_never_change
BEFORE UPDATE ON onejob.certificates
FOR EACH ROW WHEN (
    OLD.suspended_at IS NOT NULL
    OR OLD.id IS DISTINCT FROM NEW.id
    OR OLD.task IS DISTINCT FROM NEW.task
    OR OLD.provider IS DISTINCT FROM NEW.provider
    OR OLD.contract_digest IS DISTINCT FROM NEW.contract_digest
    OR OLD.model IS DISTINCT FROM NEW.model
    OR OLD.detail IS DISTINCT FROM NEW.detail
    OR OLD.issued_at IS DISTINCT FROM NEW.issued_at
    OR OLD.valid_until IS DISTINCT FROM NEW.valid_until
)
EXECUTE FUNCTION onejob.refuse();

-- R9, beside attempts_elsewhere_only_with_certificate: the certificate is there, of this task and this
-- provider, and holds. Whether it is one of the contract that is configured now, the database cannot know.
-- Whoever starts the attempt holds the certificate's row, so that it is not suspended meanwhile.
CREATE FUNCTION onejob.refuse_without_a_certificate_that_holds() RETURNS trigger LANGUAGE plpgsql AS $$
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
$$;

CREATE TRIGGER attempts_certificate_holds
BEFORE INSERT ON onejob.attempts
FOR EACH ROW WHEN (NEW.certificate_id IS NOT NULL)
EXECUTE FUNCTION onejob.refuse_without_a_certificate_that_holds();

-- The last run of each contract at each provider, and the lease of the one that runs.
CREATE TABLE onejob.verifications (
    task             text     COLLATE "C" NOT NULL,
    provider         text     COLLATE "C" NOT NULL,
    run              uuid,
    running_since    bigint,
    lease_until      bigint,
    last_run         uuid,
    contract_digest  bytea,
    started_at       bigint,
    ended_at         bigint,
    passed           boolean,
    report           text,
    certificate_id   uuid,
    CONSTRAINT verifications_pkey PRIMARY KEY (task, provider),
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
);
