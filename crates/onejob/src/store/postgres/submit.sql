WITH made AS (
    INSERT INTO onejob.jobs (
        id, owner, idempotency_key, task, provider, fingerprint_version, fingerprint, effects, priority, run_at,
        deadline, state, version, revision, tries_from, next_provider, next_primary, next_certificate, due_at,
        duplicates, created_at, updated_at, metadata, input
    )
    SELECT
        new.id, new.owner, new.idempotency_key, new.task, new.provider, new.fingerprint_version, new.fingerprint,
        new.effects, new.priority, new.run_at, new.deadline, new.state, new.version, 0, 0, new.next_provider,
        new.next_primary, new.next_certificate, new.due_at, 0, new.at, new.at, new.metadata, new.input
    -- The caller has sorted them by owner and key: batches that share keys wait for each other in that
    -- order and never in a circle.
    FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::text[],
        $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::text[], $15::text[],
        $16::uuid[], $17::bigint[], $18::bigint[], $19::text[], $20::text[]
    ) AS new (
        id, owner, idempotency_key, task, provider, fingerprint_version, fingerprint, effects, priority, run_at,
        deadline, state, version, next_provider, next_primary, next_certificate, due_at, at, metadata, input
    )
    -- R1: insert first, never look first. A key that comes back without a row is taken; who has it is
    -- read in a second statement.
    ON CONFLICT (owner, idempotency_key) DO NOTHING
    RETURNING id, next_provider, priority, due_at, deadline
), queued AS (
    INSERT INTO onejob.queue (job_id, provider, priority, due_at, deadline)
    SELECT id, next_provider, priority, due_at, deadline FROM made WHERE next_provider IS NOT NULL
)
SELECT id FROM made
