-- Live attempts of other nodes, by boot id and never by time: a node that is slow is not dead.
-- Two statements instead of `node <> ?1`, which no index can serve.
SELECT id, job_id FROM attempts
WHERE state IN ('starting', 'running') AND node < ?1
ORDER BY node, id
LIMIT ?2
