-- A hundred whole lives in two commits, with nothing around them.
WITH made AS (
    INSERT INTO onejob.jobs (
        id, owner, idempotency_key, task, provider, fingerprint_version, fingerprint, effects, priority, run_at,
        deadline, state, version, revision, tries_from, duplicates, created_at, updated_at, metadata, input
    )
    SELECT
        figures_id(), figures_owner(), md5(random()::text), 'instant', NULL, 1, sha256('x'), 'exclusive', 0, NULL,
        NULL, 'running', 0, 0, 0, 0, 1750000000000, 1750000000000, '{}', '{"text":"' || repeat('x', 200) || '"}'
    FROM generate_series(1, 100)
    ON CONFLICT (owner, idempotency_key) DO NOTHING
    RETURNING id
), started AS (
    INSERT INTO onejob.attempts (
        job_id, id, number, task, provider, primary_provider, by_hand, exclusive, node, version_read, started_at,
        state
    )
    SELECT
        id, figures_id(), 1, 'instant', 'instant', 'instant', false, true, '00000000-0000-0000-0000-000000000001'::uuid,
        0, 1750000000000, 'starting'
    FROM made
)
SELECT array_agg(id) AS jobs FROM made \gset
BEGIN;
UPDATE onejob.jobs
SET state = 'succeeded', version = 1, revision = revision + 1, completed_by = id, result = '{"ok": true}'
WHERE id = ANY (:jobs::uuid[]) AND revision = 0 AND completed_by IS NULL;
UPDATE onejob.attempts
SET state = 'succeeded', finished_at = 1750000000000
WHERE job_id = ANY (:jobs::uuid[]) AND number = 1 AND state IN ('starting', 'running', 'unknown');
COMMIT;
