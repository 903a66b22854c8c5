-- Newest first along the primary key.
SELECT
    id, task, provider, contract_digest, model, detail, issued_at, valid_until, suspended_at, suspended_because
FROM certificates
WHERE id < ?1
    AND (?2 IS NULL OR task = ?2)
    AND (?3 IS NULL OR provider = ?3)
ORDER BY id DESC
LIMIT ?4
