-- The newest of each provider and contract: the other columns are those of the row with the greatest id.
SELECT
    max(id), task, provider, contract_digest, model, detail, issued_at, valid_until, suspended_at, suspended_because
FROM certificates
WHERE task = ?1 AND suspended_at IS NULL AND valid_until > ?2
GROUP BY provider, contract_digest
