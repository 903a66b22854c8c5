-- Newest first along the primary key. What the filter keeps is nearly always near: the rare states
-- and small owners have statements of their own.
SELECT id FROM jobs
WHERE id < ?1
    AND (?2 IS NULL OR owner = ?2)
    AND (?3 IS NULL OR idempotency_key = ?3)
    AND (?4 IS NULL OR task = ?4)
    AND (?5 IS NULL OR state = ?5)
ORDER BY id DESC
LIMIT ?6
