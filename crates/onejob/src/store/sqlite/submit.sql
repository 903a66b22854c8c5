INSERT INTO jobs (
    id, owner, idempotency_key, task, provider, fingerprint_version, fingerprint, effects, priority, run_at, deadline,
    state, version, tries_from, next_provider, next_primary, next_certificate, due_at, completed_by,
    error_class, error_status, error_message, error_failover, duplicates, created_at, updated_at,
    metadata, input, result
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
    ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
    ?20, ?21, ?22, ?23, ?24, ?25, ?26,
    ?27, ?28, ?29
)
-- R1: insert first, never look first. No row written means that the key is taken; who has it is
-- read in a second statement.
ON CONFLICT (owner, idempotency_key) DO NOTHING
