UPDATE onejob.jobs
SET
    state = new.state, version = new.version, revision = jobs.revision + 1, tries_from = new.tries_from,
    next_provider = new.next_provider, next_primary = new.next_primary, next_certificate = new.next_certificate,
    due_at = new.due_at, error_class = new.error_class, error_status = new.error_status,
    error_message = new.error_message, error_failover = new.error_failover, updated_at = new.updated_at
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::uuid[],
    $10::bigint[], $11::text[], $12::bigint[], $13::text[], $14::text[], $15::bigint[]
) AS new (
    id, revision_read, version_read, state, version, tries_from, next_provider, next_primary, next_certificate,
    due_at, error_class, error_status, error_message, error_failover, updated_at
)
WHERE jobs.id = new.id
    -- The same fence as in complete.sql: a filled slot is never closed or reopened.
    AND jobs.version = new.version_read
    AND jobs.completed_by IS NULL
    AND jobs.revision = new.revision_read
RETURNING jobs.id, jobs.duplicates
