-- The rows are held: what prunable.sql saw is looked at again, and only what is buried is taken away.
INSERT INTO onejob.tombstones (owner, idempotency_key, job_id, state, ended_at)
SELECT jobs.owner, jobs.idempotency_key, jobs.id, jobs.state, jobs.updated_at
FROM unnest($1::uuid[]) AS ended (id)
JOIN onejob.jobs ON jobs.id = ended.id
WHERE jobs.state IN ('succeeded', 'failed', 'cancelled')
    AND jobs.updated_at < $2::bigint
    AND NOT EXISTS (
        SELECT 1 FROM onejob.attempts
        WHERE attempts.job_id = jobs.id AND attempts.state IN ('starting', 'running', 'unknown')
    )
RETURNING job_id
