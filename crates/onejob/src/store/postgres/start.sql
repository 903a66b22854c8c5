-- R4 is held by attempts_one_open_per_exclusive_job, attempts_one_starting_per_job and
-- attempts_none_beside_starting_or_unknown; R9 by attempts_elsewhere_only_with_certificate.
INSERT INTO onejob.attempts (
    job_id, id, number, task, provider, primary_provider, by_hand, exclusive, certificate_id, node, version_read,
    started_at, state
)
SELECT
    jobs.id, new.id, new.number, jobs.task, new.provider, new.primary_provider, new.by_hand,
    jobs.effects = 'exclusive', new.certificate_id, new.node, new.version_read, new.started_at, 'starting'
FROM unnest(
    $1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::boolean[], $7::uuid[], $8::uuid[], $9::bigint[],
    $10::bigint[]
) AS new (job_id, id, number, provider, primary_provider, by_hand, certificate_id, node, version_read, started_at)
-- In the commit that makes a job: only if it was made, and its key not taken.
JOIN onejob.jobs ON jobs.id = new.job_id
RETURNING job_id
