UPDATE certificates SET suspended_at = ?2, suspended_because = ?3
-- The one that is named, and those issued before it for the same contract. Once and for ever.
WHERE (task, provider, contract_digest) = (SELECT task, provider, contract_digest FROM certificates WHERE id = ?1)
    AND id <= ?1
    AND suspended_at IS NULL
