-- Newest first along the primary key. What the filter keeps is nearly always near: the rare states
-- and small owners have statements of their own.
SELECT jobs.id FROM onejob.jobs
WHERE jobs.id < $1::uuid
    AND ($2::text IS NULL OR jobs.owner = $2)
    AND ($3::text IS NULL OR jobs.idempotency_key = $3)
    AND ($4::text IS NULL OR jobs.task = $4)
    AND ($5::text IS NULL OR jobs.state = $5)
ORDER BY jobs.id DESC
LIMIT $6::bigint
