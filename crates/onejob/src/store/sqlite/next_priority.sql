-- The next lower priority in a provider's line: a step from one group of the index to the next, so
-- that jobs of a high priority which are due far in the future are never walked through.
SELECT priority FROM jobs
WHERE state = 'queued' AND next_provider = ?1 AND priority < ?2
ORDER BY priority DESC
LIMIT 1
