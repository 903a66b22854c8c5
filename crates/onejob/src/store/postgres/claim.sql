-- The priorities in a provider's line, the highest first: a step from one group of the index to the
-- next, so that jobs of a high priority which are due far in the future are never walked through.
WITH RECURSIVE line (priority) AS (
    (SELECT queue.priority FROM onejob.queue WHERE queue.provider = $1::text ORDER BY queue.priority DESC LIMIT 1)
    UNION ALL
    SELECT (
        SELECT queue.priority FROM onejob.queue
        WHERE queue.provider = $1 AND queue.priority < line.priority
        ORDER BY queue.priority DESC
        LIMIT 1
    )
    FROM line
    WHERE line.priority IS NOT NULL
)
-- Due jobs of each in the order of queue_line. What another node is writing is passed over.
SELECT due.id, coalesce($2::bigint, onejob.now_ms())
FROM line
CROSS JOIN LATERAL (
    SELECT jobs.id
    FROM onejob.queue
    JOIN onejob.jobs ON jobs.id = queue.job_id
    WHERE queue.provider = $1 AND queue.priority = line.priority
        AND queue.due_at <= coalesce($2, onejob.now_ms())
        AND queue.job_id <> ALL ($3::uuid[])
        -- Looked at again when the row is held: it may have been taken meanwhile.
        AND jobs.next_provider = $1
    ORDER BY queue.due_at, queue.job_id
    LIMIT $4::bigint
    FOR UPDATE OF jobs SKIP LOCKED
) AS due
LIMIT $4
