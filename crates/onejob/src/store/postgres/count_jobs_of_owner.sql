-- Stops counting at $2.
SELECT count(*) FROM (SELECT 1 FROM onejob.jobs WHERE owner = $1::text LIMIT $2::bigint) AS counted
