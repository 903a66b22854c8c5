-- A late attempt of a won job has ended: nothing of the job changes but the time.
UPDATE onejob.jobs
SET updated_at = new.updated_at, revision = jobs.revision + 1
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[]) AS new (id, revision_read, version_read, updated_at)
WHERE jobs.id = new.id AND jobs.version = new.version_read AND jobs.revision = new.revision_read
RETURNING jobs.id, jobs.duplicates
