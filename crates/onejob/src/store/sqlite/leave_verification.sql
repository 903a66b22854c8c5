UPDATE verifications SET run = NULL, running_since = NULL, lease_until = NULL
WHERE task = ?1 AND provider = ?2 AND run = ?3
