-- Due jobs of one priority in the order of jobs_line.
SELECT due_at, id FROM jobs
WHERE state = 'queued' AND next_provider = ?1 AND priority = ?2
    AND due_at <= ?3
    -- Where the last page ended.
    AND (due_at, id) > (?4, ?5)
ORDER BY due_at, id
LIMIT ?6
