SELECT id FROM jobs
WHERE id < ?1
    AND owner = ?2
    AND idempotency_key = ?3
    AND (?4 IS NULL OR task = ?4)
    AND (?5 IS NULL OR state = ?5)
LIMIT ?6
