-- R4 is held by attempts_one_open_per_exclusive_job, attempts_one_starting_per_job and
-- attempts_none_beside_starting_or_unknown; R9 by attempts_elsewhere_only_with_certificate.
INSERT INTO attempts (
    job_id, id, number, task, provider, primary_provider, by_hand, exclusive, certificate_id, node, version_read,
    started_at, state
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
