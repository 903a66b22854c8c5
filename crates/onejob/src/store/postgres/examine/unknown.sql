-- Stops counting where nobody reads a larger number.
SELECT count(*), min(unknown_since)
FROM (SELECT unknown_since FROM onejob.attempts WHERE state = 'unknown' LIMIT 100000) AS counted
