SELECT jobs.id FROM onejob.jobs
WHERE jobs.id < $1::uuid
    AND ($2::text IS NULL OR jobs.owner = $2)
    AND ($3::text IS NULL OR jobs.idempotency_key = $3)
    AND ($4::text IS NULL OR jobs.task = $4)
    -- Failed or cancelled.
    AND jobs.without_result = $5::text
ORDER BY jobs.id DESC
LIMIT $6::bigint
