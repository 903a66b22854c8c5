SELECT jobs.id FROM onejob.jobs
WHERE jobs.id < $1::uuid
    AND jobs.owner = $2::text
    AND jobs.idempotency_key = $3::text
    AND ($4::text IS NULL OR jobs.task = $4)
    AND ($5::text IS NULL OR jobs.state = $5)
LIMIT $6::bigint
