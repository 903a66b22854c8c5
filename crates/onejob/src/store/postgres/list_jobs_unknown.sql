-- An unknown job has an unknown attempt.
SELECT jobs.id FROM (
    SELECT DISTINCT attempts.job_id FROM onejob.attempts
    WHERE attempts.state = 'unknown' AND attempts.job_id < $1::uuid
    ORDER BY attempts.job_id DESC
) AS waiting
JOIN onejob.jobs ON jobs.id = waiting.job_id
WHERE ($2::text IS NULL OR jobs.owner = $2)
    AND ($3::text IS NULL OR jobs.idempotency_key = $3)
    AND ($4::text IS NULL OR jobs.task = $4)
    AND jobs.state = $5::text
ORDER BY waiting.job_id DESC
LIMIT $6::bigint
