-- A step from one provider's line to the next.
SELECT next_provider FROM jobs
WHERE state = 'queued' AND next_provider > ?1
ORDER BY next_provider
LIMIT 1
