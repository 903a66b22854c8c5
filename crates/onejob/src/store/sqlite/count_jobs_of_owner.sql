-- Stops counting at ?2.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE owner = ?1 LIMIT ?2)
