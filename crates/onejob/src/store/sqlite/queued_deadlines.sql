SELECT id, deadline FROM jobs
WHERE state = 'queued' AND deadline IS NOT NULL
ORDER BY deadline, id
LIMIT ?1
