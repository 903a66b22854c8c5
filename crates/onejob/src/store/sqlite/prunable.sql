-- The oldest jobs along the primary key, and which of them may go.
SELECT
    id,
    state IN ('succeeded', 'failed', 'cancelled')
    -- Retention counts from the end.
    AND updated_at < ?3
    -- R12: nor while an attempt that lost, or whose job was cancelled, may still be alive.
    AND NOT EXISTS (
        SELECT 1 FROM attempts
        WHERE attempts.job_id = jobs.id AND attempts.state IN ('starting', 'running', 'unknown')
    )
FROM jobs
WHERE id > ?1 AND id < ?2
ORDER BY id
LIMIT ?4
