-- Newest first along attempts_by_id.
SELECT
    attempts.id, attempts.number, attempts.provider, attempts.primary_provider, attempts.by_hand,
    attempts.certificate_id, attempts.node, attempts.version_read, attempts.started_at,
    attempts.state, attempts.handle, attempts.model, attempts.input_tokens, attempts.output_tokens, attempts.cause,
    attempts.unknown_since, attempts.finished_at, attempts.failure_class, attempts.failure_status,
    attempts.failure_message, attempts.superseded_by, attempts.never_sent,
    attempts.resolved_by, attempts.resolved_at, attempts.resolved_reason,
    attempts.job_id, jobs.owner, attempts.task
FROM onejob.attempts
-- Each has a job. Said this way the walk begins at the attempts, also while the tables are empty.
LEFT JOIN onejob.jobs ON jobs.id = attempts.job_id
WHERE attempts.id < $1::uuid
    AND ($2::text IS NULL OR jobs.owner = $2)
    AND ($3::text IS NULL OR attempts.task = $3)
    AND ($4::text IS NULL OR attempts.provider = $4)
    AND ($5::text IS NULL OR attempts.state = $5)
ORDER BY attempts.id DESC
LIMIT $6::bigint
