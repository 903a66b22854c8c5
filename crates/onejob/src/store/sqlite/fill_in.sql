UPDATE jobs
SET
    task = ?2, provider = ?3, fingerprint_version = ?4, fingerprint = ?5, input = ?6, metadata = ?7, priority = ?8,
    run_at = ?9, updated_at = ?10
-- R3: only where nothing was asked before.
WHERE id = ?1 AND task IS NULL
