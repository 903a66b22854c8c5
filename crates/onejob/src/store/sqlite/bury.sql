INSERT INTO tombstones (owner, idempotency_key, job_id, state, ended_at)
SELECT owner, idempotency_key, id, state, updated_at FROM jobs WHERE id = ?1
