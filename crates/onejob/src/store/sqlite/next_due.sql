SELECT due_at, id FROM jobs
WHERE state = 'queued' AND next_provider = ?1 AND priority = ?2
ORDER BY due_at, id
LIMIT ?3
