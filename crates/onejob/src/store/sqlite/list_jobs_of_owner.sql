-- For owners with few jobs: all of them, sorted here.
SELECT id FROM jobs INDEXED BY jobs_one_per_owner_and_key
WHERE id < ?1
    AND owner = ?2
    AND (?3 IS NULL OR idempotency_key = ?3)
    AND (?4 IS NULL OR task = ?4)
    AND (?5 IS NULL OR state = ?5)
ORDER BY id DESC
LIMIT ?6
