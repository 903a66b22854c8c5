UPDATE attempts
SET
    state = ?3, handle = ?4, model = ?5, input_tokens = ?6, output_tokens = ?7, cause = ?8, unknown_since = ?9,
    finished_at = ?10, failure_class = ?11, failure_status = ?12, failure_message = ?13, superseded_by = ?14,
    never_sent = ?15, resolved_by = ?16, resolved_at = ?17, resolved_reason = ?18
WHERE job_id = ?1 AND number = ?2
    -- R8: what has ended never changes; an abandoned attempt is fenced here.
    AND state IN ('starting', 'running', 'unknown')
