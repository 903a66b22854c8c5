INSERT INTO onejob.nodes (id, name, entered_at, held_since, lease_ms, lease_until)
VALUES ($1::uuid, $2::text, onejob.now_ms(), onejob.now_ms(), $3::bigint, onejob.now_ms() + $3)
ON CONFLICT (id) DO NOTHING
