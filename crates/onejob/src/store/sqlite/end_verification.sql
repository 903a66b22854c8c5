UPDATE verifications
SET
    run = NULL, running_since = NULL, lease_until = NULL, last_run = ?3, contract_digest = ?4, started_at = ?5,
    ended_at = ?6, passed = ?7, report = ?8, certificate_id = ?9
-- Who lost its lease has lost its say.
WHERE task = ?1 AND provider = ?2 AND run = ?3
