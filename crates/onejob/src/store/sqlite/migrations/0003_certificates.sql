-- Passes of a task's contract at a provider. Times are milliseconds since the Unix epoch.
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

-- The one change allowed is to be suspended, once.
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

-- R9, beside attempts_elsewhere_only_with_certificate: the certificate is there, of this task and this
-- provider, and holds. Whether it is one of the contract that is configured now, the database cannot know.
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

-- The last run of each contract at each provider, and the lease of the one that runs.
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
