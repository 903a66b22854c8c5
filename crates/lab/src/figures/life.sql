-- A whole life as three transactions: submit, start, complete.
WITH made AS (
    INSERT INTO onejob.jobs (
        id, owner, idempotency_key, task, provider, fingerprint_version, fingerprint, effects, priority, run_at,
        deadline, state, version, revision, tries_from, next_provider, next_primary, next_certificate, due_at,
        duplicates, created_at, updated_at, metadata, input
    )
    VALUES (
        figures_id(), figures_owner(), md5(random()::text), 'instant', NULL, 1, sha256('x'), 'exclusive', 0, NULL,
        NULL, 'queued', 0, 0, 0, 'instant', 'instant', NULL, 1750000000000,
        0, 1750000000000, 1750000000000, '{}', '{"text":"' || repeat('x', 200) || '"}'
    )
    ON CONFLICT (owner, idempotency_key) DO NOTHING
    RETURNING id, next_provider, priority, due_at, deadline
), queued AS (
    INSERT INTO onejob.queue (job_id, provider, priority, due_at, deadline)
    SELECT id, next_provider, priority, due_at, deadline FROM made
)
SELECT id AS job, figures_id() AS attempt FROM made \gset
BEGIN;
UPDATE onejob.jobs
SET state = 'running', revision = revision + 1, next_provider = NULL, next_primary = NULL, due_at = NULL
WHERE id = :job::uuid AND revision = 0 AND completed_by IS NULL;
INSERT INTO onejob.attempts (
    job_id, id, number, task, provider, primary_provider, by_hand, exclusive, node, version_read, started_at, state
)
VALUES (
    :job::uuid, :attempt::uuid, 1, 'instant', 'instant', 'instant', false, true,
    '00000000-0000-0000-0000-000000000001', 0, 1750000000000, 'starting'
);
DELETE FROM onejob.queue WHERE job_id = :job::uuid;
COMMIT;
BEGIN;
UPDATE onejob.jobs
SET state = 'succeeded', version = 1, revision = revision + 1, completed_by = :attempt::uuid, result = '{"ok": true}'
WHERE id = :job::uuid AND revision = 1 AND completed_by IS NULL;
UPDATE onejob.attempts
SET state = 'succeeded', finished_at = 1750000000000
WHERE job_id = :job::uuid AND number = 1 AND state IN ('starting', 'running', 'unknown');
COMMIT;
