-- Stops counting where nobody reads a larger number.
SELECT provider, count(*), count(*) FILTER (WHERE due_at <= onejob.now_ms()), min(due_at)
FROM (SELECT provider, due_at FROM onejob.queue LIMIT 100000) AS counted
GROUP BY provider
ORDER BY provider
