SELECT job_id, deadline FROM onejob.queue
WHERE deadline IS NOT NULL
ORDER BY deadline, job_id
LIMIT $1::bigint
