SELECT
    task, provider, run, running_since, lease_until, contract_digest, started_at, ended_at, passed, report,
    certificate_id
FROM onejob.verifications
-- All: no task has an empty name.
WHERE task > ''
ORDER BY task, provider
