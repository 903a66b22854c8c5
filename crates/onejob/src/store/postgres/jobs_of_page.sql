-- The jobs of `page`, each with its attempts, in one snapshot. Large texts stand in one row of each job.
SELECT
    jobs.id, jobs.owner, jobs.idempotency_key, jobs.task, jobs.provider, jobs.fingerprint_version, jobs.fingerprint,
    jobs.effects, jobs.priority, jobs.run_at, jobs.deadline, jobs.state, jobs.version, jobs.tries_from,
    jobs.next_provider, jobs.next_primary, jobs.next_certificate, jobs.due_at, jobs.completed_by,
    jobs.error_class, jobs.error_status, jobs.error_message, jobs.error_failover, jobs.duplicates,
    jobs.created_at, jobs.updated_at,
    CASE WHEN coalesce(attempts.number, 1) = 1 THEN jobs.metadata END,
    CASE WHEN coalesce(attempts.number, 1) = 1 THEN jobs.input END,
    CASE WHEN coalesce(attempts.number, 1) = 1 THEN jobs.result END,
    jobs.revision,
    attempts.id, attempts.number, attempts.provider, attempts.primary_provider, attempts.by_hand,
    attempts.certificate_id, attempts.node, attempts.version_read, attempts.started_at,
    attempts.state, attempts.handle, attempts.model, attempts.input_tokens, attempts.output_tokens, attempts.cause,
    attempts.unknown_since, attempts.finished_at, attempts.failure_class, attempts.failure_status,
    attempts.failure_message, attempts.superseded_by, attempts.never_sent,
    attempts.resolved_by, attempts.resolved_at, attempts.resolved_reason
FROM page
JOIN onejob.jobs ON jobs.id = page.id
LEFT JOIN onejob.attempts ON attempts.job_id = jobs.id
