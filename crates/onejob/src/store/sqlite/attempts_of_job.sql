SELECT
    id, number, provider, primary_provider, by_hand, certificate_id, node, version_read, started_at,
    state, handle, model, input_tokens, output_tokens, cause, unknown_since, finished_at,
    failure_class, failure_status, failure_message, superseded_by, never_sent,
    resolved_by, resolved_at, resolved_reason
FROM attempts
WHERE job_id = ?1
ORDER BY number
