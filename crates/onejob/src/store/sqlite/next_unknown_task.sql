-- The longest unknown attempt of the next task: a step from one group of the index to the next.
SELECT task, unknown_since FROM attempts INDEXED BY attempts_unknown_by_task
WHERE state = 'unknown' AND task > ?1
ORDER BY task, unknown_since
LIMIT 1
