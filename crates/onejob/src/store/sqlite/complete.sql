UPDATE jobs
SET
    state = 'succeeded', version = ?3, completed_by = ?4, result = ?5, updated_at = ?6,
    next_provider = NULL, next_primary = NULL, next_certificate = NULL, due_at = NULL
WHERE id = ?1
    -- R6: compare-and-swap. Only writing the slot, failing, cancelling and reopening raise the
    -- version, so the first of two racing attempts wins and the second finds no row.
    AND version = ?2
    AND completed_by IS NULL
