-- See reap_before.sql.
SELECT id, job_id FROM attempts
WHERE state IN ('starting', 'running') AND node > ?1
ORDER BY node, id
LIMIT ?2
