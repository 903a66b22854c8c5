-- What stays of a pruned job: its key, for ever (R12).
CREATE TABLE tombstones (
    owner            TEXT    NOT NULL,
    idempotency_key  TEXT    NOT NULL,
    job_id           BLOB    NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled')),
    ended_at         INTEGER NOT NULL,
    PRIMARY KEY (owner, idempotency_key)
) STRICT, WITHOUT ROWID;
