-- In every transaction that starts attempts: a node that was paused past its lease starts nothing.
SELECT 1 FROM onejob.nodes WHERE id = $1::uuid AND ended_at IS NULL AND lease_until >= onejob.now_ms()
