SELECT next_provider, count(*), count(*) FILTER (WHERE due_at <= ?1), min(due_at)
FROM jobs
WHERE state = 'queued'
GROUP BY next_provider
ORDER BY next_provider
