SELECT
    id, task, provider, contract_digest, model, detail, issued_at, valid_until, suspended_at, suspended_because
FROM certificates
WHERE id = ?1
