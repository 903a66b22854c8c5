-- Stops counting at $1.
SELECT count(*) FROM (SELECT 1 FROM onejob.attempts WHERE state = 'unknown' LIMIT $1::bigint) AS counted
