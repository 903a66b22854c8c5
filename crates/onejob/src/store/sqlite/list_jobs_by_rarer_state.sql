SELECT id FROM jobs
WHERE id < ?1
    AND (?2 IS NULL OR owner = ?2)
    AND (?3 IS NULL OR idempotency_key = ?3)
    AND (?4 IS NULL OR task = ?4)
    -- Said twice: the second line is how the planner knows that the index has them all.
    AND state = ?5
    AND state IN ('queued', 'unknown', 'failed', 'cancelled')
ORDER BY id DESC
LIMIT ?6
