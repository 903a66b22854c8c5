-- A running job has a live attempt, and of those there are never many.
SELECT jobs.id FROM (
    SELECT DISTINCT attempts.job_id FROM onejob.attempts
    WHERE attempts.state IN ('starting', 'running')
) AS busy
JOIN onejob.jobs ON jobs.id = busy.job_id
WHERE jobs.id < $1::uuid
    AND ($2::text IS NULL OR jobs.owner = $2)
    AND ($3::text IS NULL OR jobs.idempotency_key = $3)
    AND ($4::text IS NULL OR jobs.task = $4)
    AND jobs.state = $5::text
ORDER BY jobs.id DESC
LIMIT $6::bigint
