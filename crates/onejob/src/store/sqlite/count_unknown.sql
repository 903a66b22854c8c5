-- Stops counting at ?1.
SELECT count(*) FROM (SELECT 1 FROM attempts WHERE state = 'unknown' LIMIT ?1)
