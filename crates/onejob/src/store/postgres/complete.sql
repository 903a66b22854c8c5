UPDATE onejob.jobs
SET
    state = 'succeeded', version = new.version, revision = jobs.revision + 1, completed_by = new.completed_by,
    result = new.result, updated_at = new.updated_at,
    next_provider = NULL, next_primary = NULL, next_certificate = NULL, due_at = NULL
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::text[], $7::bigint[]
) AS new (id, revision_read, version_read, version, completed_by, result, updated_at)
WHERE jobs.id = new.id
    -- R6: compare-and-swap. Only writing the slot, failing, cancelling and reopening raise the
    -- version, so the first of two racing attempts wins and the second finds no row.
    AND jobs.version = new.version_read
    AND jobs.completed_by IS NULL
    -- Nothing was written since the job was read: neither here nor to one of its attempts.
    AND jobs.revision = new.revision_read
RETURNING jobs.id, jobs.duplicates
