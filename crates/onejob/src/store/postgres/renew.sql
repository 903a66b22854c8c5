UPDATE onejob.nodes
SET
    lease_until = onejob.now_ms() + $2::bigint,
    lease_ms = $2,
    held_since = CASE WHEN lease_until < onejob.now_ms() THEN onejob.now_ms() ELSE held_since END
WHERE id = $1::uuid
    -- See fence.sql.
    AND ended_at IS NULL
RETURNING floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
