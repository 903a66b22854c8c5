SELECT tombstones.owner, tombstones.idempotency_key, tombstones.job_id, tombstones.state, tombstones.ended_at
FROM unnest($1::text[], $2::text[]) AS wanted (owner, idempotency_key)
JOIN onejob.tombstones
    ON tombstones.owner = wanted.owner AND tombstones.idempotency_key = wanted.idempotency_key
