-- The oldest jobs along the primary key, and which of them may go.
SELECT
    jobs.id,
    jobs.state IN ('succeeded', 'failed', 'cancelled')
    -- Retention counts from the end.
    AND jobs.updated_at < $3::bigint
    -- R12: nor while an attempt that lost, or whose job was cancelled, may still be alive.
    AND NOT EXISTS (
        SELECT 1 FROM onejob.attempts
        WHERE attempts.job_id = jobs.id AND attempts.state IN ('starting', 'running', 'unknown')
        -- Looked up for each job: without this some versions read all attempts first.
        OFFSET 0
    )
FROM onejob.jobs
WHERE jobs.id > $1::uuid AND jobs.id < $2::uuid
ORDER BY jobs.id
LIMIT $4::bigint
