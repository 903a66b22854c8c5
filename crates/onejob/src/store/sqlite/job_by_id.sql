SELECT
    id, owner, idempotency_key, task, provider, fingerprint_version, fingerprint, effects, priority, run_at, deadline,
    state, version, tries_from, next_provider, next_primary, next_certificate, due_at, completed_by,
    error_class, error_status, error_message, error_failover, duplicates, created_at, updated_at,
    metadata, input, result
FROM jobs
WHERE id = ?1
