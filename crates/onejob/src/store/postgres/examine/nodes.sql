SELECT
    nodes.name, nodes.entered_at, nodes.lease_until, nodes.ended_at, onejob.now_ms(),
    (SELECT count(*) FROM onejob.attempts WHERE attempts.node = nodes.id AND attempts.state IN ('starting', 'running'))
FROM onejob.nodes
ORDER BY nodes.id DESC
LIMIT 100
