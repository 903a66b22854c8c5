SELECT old.owner, old.idempotency_key, old.job_id, old.state, old.ended_at
FROM unnest($1::text[], $2::text[]) AS wanted (owner, idempotency_key)
CROSS JOIN LATERAL (
    SELECT tombstones.* FROM onejob.tombstones
    WHERE tombstones.owner = wanted.owner AND tombstones.idempotency_key = wanted.idempotency_key
    -- Looked up for each key: statistics of an empty table make some versions walk all of it.
    OFFSET 0
) AS old
