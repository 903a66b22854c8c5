-- For owners with few jobs: all of them, sorted here.
SELECT few.id FROM (
    SELECT jobs.id FROM onejob.jobs
    WHERE jobs.owner = $2::text
        AND ($3::text IS NULL OR jobs.idempotency_key = $3)
        AND ($4::text IS NULL OR jobs.task = $4)
        AND ($5::text IS NULL OR jobs.state = $5)
    -- Keeps the planner from walking the primary key in the hope of meeting this owner.
    OFFSET 0
) AS few
WHERE few.id < $1::uuid
ORDER BY few.id DESC
LIMIT $6::bigint
