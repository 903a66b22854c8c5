-- The newest of each provider and contract.
SELECT DISTINCT ON (provider, contract_digest)
    id, task, provider, contract_digest, model, detail, issued_at, valid_until, suspended_at, suspended_because
FROM onejob.certificates
WHERE task = $1::text AND suspended_at IS NULL AND valid_until > $2::bigint
ORDER BY provider, contract_digest, id DESC
