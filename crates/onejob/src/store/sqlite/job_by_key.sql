SELECT id FROM jobs WHERE owner = ?1 AND idempotency_key = ?2
