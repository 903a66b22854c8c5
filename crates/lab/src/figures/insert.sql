-- One job that is not due, with its place in the line.
WITH made AS (
    INSERT INTO onejob.jobs (
        id, owner, idempotency_key, task, provider, fingerprint_version, fingerprint, effects, priority, run_at,
        deadline, state, version, revision, tries_from, next_provider, next_primary, next_certificate, due_at,
        duplicates, created_at, updated_at, metadata, input
    )
    VALUES (
        figures_id(), figures_owner(), md5(random()::text), 'instant', NULL, 1, sha256('x'), 'exclusive', 0,
        32472144000000, NULL, 'queued', 0, 0, 0, 'instant', 'instant', NULL, 32472144000000,
        0, 1750000000000, 1750000000000, '{}', '{"text":"' || repeat('x', 200) || '"}'
    )
    ON CONFLICT (owner, idempotency_key) DO NOTHING
    RETURNING id, next_provider, priority, due_at, deadline
), queued AS (
    INSERT INTO onejob.queue (job_id, provider, priority, due_at, deadline)
    SELECT id, next_provider, priority, due_at, deadline FROM made
)
SELECT id FROM made;
