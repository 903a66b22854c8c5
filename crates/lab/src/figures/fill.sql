-- Finished jobs, as many as stand in place of FINISHED.
INSERT INTO onejob.jobs (
    id, owner, idempotency_key, task, fingerprint_version, fingerprint, effects, priority, state, version, revision,
    tries_from, completed_by, result, duplicates, created_at, updated_at, metadata, input
)
SELECT
    figures_id(), figures_owner(), md5(random()::text), 'instant', 1, sha256('x'), 'exclusive', 0, 'succeeded', 1, 1,
    0, figures_id(), '{"ok": true}', 0, 1750000000000, 1750000000000, '{}', '{"text":"' || repeat('x', 200) || '"}'
FROM generate_series(1, FINISHED);
INSERT INTO onejob.attempts (
    job_id, id, number, task, provider, primary_provider, by_hand, exclusive, node, version_read, started_at, state,
    finished_at
)
SELECT
    id, completed_by, 1, 'instant', 'instant', 'instant', false, true, '00000000-0000-0000-0000-000000000001', 0,
    1750000000000, 'succeeded', 1750000000000
FROM onejob.jobs;
