-- The nodes that have live attempts: a step from one group of the index to the next.
WITH RECURSIVE present (node) AS (
    (
        SELECT attempts.node FROM onejob.attempts
        WHERE attempts.state IN ('starting', 'running')
        ORDER BY attempts.node
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT attempts.node FROM onejob.attempts
        WHERE attempts.state IN ('starting', 'running') AND attempts.node > present.node
        ORDER BY attempts.node
        LIMIT 1
    )
    FROM present
    WHERE present.node IS NOT NULL
)
SELECT left_open.id, left_open.job_id
FROM present
CROSS JOIN LATERAL (
    SELECT attempts.id, attempts.job_id FROM onejob.attempts
    WHERE attempts.state IN ('starting', 'running') AND attempts.node = present.node
    ORDER BY attempts.id
    LIMIT $2::bigint
) AS left_open
-- By boot id and never by time: a node is dead when it was declared so, or was never there.
WHERE present.node <> $1::uuid
    AND NOT EXISTS (SELECT 1 FROM onejob.nodes WHERE nodes.id = present.node AND nodes.ended_at IS NULL)
LIMIT $2
