UPDATE onejob.attempts
SET
    state = new.state, handle = new.handle, model = new.model, input_tokens = new.input_tokens,
    output_tokens = new.output_tokens, cause = new.cause, unknown_since = new.unknown_since,
    finished_at = new.finished_at, failure_class = new.failure_class, failure_status = new.failure_status,
    failure_message = new.failure_message, superseded_by = new.superseded_by, never_sent = new.never_sent,
    resolved_by = new.resolved_by, resolved_at = new.resolved_at, resolved_reason = new.resolved_reason
FROM unnest(
    $1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[],
    $10::bigint[], $11::text[], $12::bigint[], $13::text[], $14::uuid[], $15::boolean[], $16::text[], $17::bigint[],
    $18::text[]
) AS new (
    job_id, number, state, handle, model, input_tokens, output_tokens, cause, unknown_since, finished_at,
    failure_class, failure_status, failure_message, superseded_by, never_sent, resolved_by, resolved_at,
    resolved_reason
)
-- By the primary key, which no partial index can serve in its place.
WHERE attempts.job_id = new.job_id AND attempts.number = new.number
    -- R8: what has ended never changes; an abandoned attempt is fenced here.
    AND attempts.state IN ('starting', 'running', 'unknown')
RETURNING attempts.job_id
