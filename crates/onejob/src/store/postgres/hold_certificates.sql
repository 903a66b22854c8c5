-- What attempts are about to stand on. Held until they are committed: a suspension waits, or has come first.
-- The newest first, as a suspension goes through them.
SELECT
    id, task, provider, contract_digest, model, detail, issued_at, valid_until, suspended_at, suspended_because
FROM onejob.certificates
WHERE id = ANY ($1::uuid[])
ORDER BY id DESC
FOR SHARE
