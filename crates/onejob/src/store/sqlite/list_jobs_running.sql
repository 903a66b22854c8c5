-- A running job has a live attempt, and of those there are never many.
SELECT id FROM jobs
WHERE id IN (SELECT job_id FROM attempts WHERE state IN ('starting', 'running'))
    AND id < ?1
    AND (?2 IS NULL OR owner = ?2)
    AND (?3 IS NULL OR idempotency_key = ?3)
    AND (?4 IS NULL OR task = ?4)
    AND state = ?5
ORDER BY id DESC
LIMIT ?6
