UPDATE onejob.certificates SET suspended_at = $2::bigint, suspended_because = $3::text
-- The one that is named, and those issued before it for the same contract. Once and for ever.
WHERE (task, provider, contract_digest)
        = (SELECT named.task, named.provider, named.contract_digest FROM onejob.certificates AS named WHERE named.id = $1::uuid)
    AND id <= $1
    AND suspended_at IS NULL
RETURNING id, task, provider, contract_digest, model, detail, issued_at, valid_until, suspended_at, suspended_because
