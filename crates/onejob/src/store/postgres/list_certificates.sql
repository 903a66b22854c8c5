-- Newest first along the primary key.
SELECT
    id, task, provider, contract_digest, model, detail, issued_at, valid_until, suspended_at, suspended_because
FROM onejob.certificates
WHERE id < $1::uuid
    AND ($2::text IS NULL OR task = $2)
    AND ($3::text IS NULL OR provider = $3)
ORDER BY id DESC
LIMIT $4::bigint
