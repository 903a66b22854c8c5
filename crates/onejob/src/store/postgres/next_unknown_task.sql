-- The longest unknown attempt of the next task: a step from one group of the index to the next.
SELECT task, unknown_since FROM onejob.attempts
WHERE state = 'unknown' AND task > $1::text
ORDER BY task, unknown_since
LIMIT 1
