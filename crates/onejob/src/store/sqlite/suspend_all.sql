UPDATE certificates SET suspended_at = ?3, suspended_because = ?4
WHERE task = ?1 AND provider = ?2 AND suspended_at IS NULL
