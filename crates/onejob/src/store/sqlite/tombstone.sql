SELECT job_id, state, ended_at FROM tombstones WHERE owner = ?1 AND idempotency_key = ?2
