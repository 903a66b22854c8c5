-- When the first job in a provider's line comes due, but for those passed over; see claim.sql.
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
SELECT min(earliest.due_at), onejob.now_ms()
FROM line
CROSS JOIN LATERAL (
    SELECT queue.due_at
    FROM onejob.queue
    WHERE queue.provider = $1 AND queue.priority = line.priority AND queue.job_id <> ALL ($2::uuid[])
    ORDER BY queue.due_at, queue.job_id
    LIMIT 1
) AS earliest
