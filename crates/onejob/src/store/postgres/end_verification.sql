UPDATE onejob.verifications
SET
    run = NULL, running_since = NULL, lease_until = NULL, last_run = $3::uuid, contract_digest = $4::bytea,
    started_at = $5::bigint, ended_at = $6::bigint, passed = $7::boolean, report = $8::text, certificate_id = $9::uuid
-- Who lost its lease has lost its say.
WHERE task = $1::text AND provider = $2::text AND run = $3
RETURNING task
