-- Stops counting at ?1.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 'queued' LIMIT ?1)
