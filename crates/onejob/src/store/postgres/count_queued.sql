-- Stops counting at $1.
SELECT count(*) FROM (SELECT 1 FROM onejob.queue LIMIT $1::bigint) AS counted
