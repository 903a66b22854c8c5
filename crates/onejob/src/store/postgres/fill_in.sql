UPDATE onejob.jobs
SET
    task = new.task, provider = new.provider, fingerprint_version = new.fingerprint_version,
    fingerprint = new.fingerprint, input = new.input, metadata = new.metadata, priority = new.priority,
    run_at = new.run_at, updated_at = new.updated_at, revision = jobs.revision + 1
FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
    $10::bigint[]
) AS new (id, task, provider, fingerprint_version, fingerprint, input, metadata, priority, run_at, updated_at)
-- R3: only where nothing was asked before.
WHERE jobs.id = new.id AND jobs.task IS NULL
RETURNING jobs.id, jobs.duplicates
