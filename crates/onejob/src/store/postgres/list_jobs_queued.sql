-- Of these there may be many, and they are few beside those that have ended.
SELECT jobs.id FROM (
    SELECT queue.job_id FROM onejob.queue
    WHERE queue.job_id < $1::uuid
    ORDER BY queue.job_id DESC
    -- Keeps the planner from walking the jobs in the hope of meeting queued ones.
    OFFSET 0
) AS waiting
JOIN onejob.jobs ON jobs.id = waiting.job_id
WHERE ($2::text IS NULL OR jobs.owner = $2)
    AND ($3::text IS NULL OR jobs.idempotency_key = $3)
    AND ($4::text IS NULL OR jobs.task = $4)
    AND jobs.state = $5::text
ORDER BY waiting.job_id DESC
LIMIT $6::bigint
