UPDATE onejob.nodes
SET ended_at = onejob.now_ms(), lease_until = least(lease_until, onejob.now_ms())
WHERE id = $1::uuid AND ended_at IS NULL
