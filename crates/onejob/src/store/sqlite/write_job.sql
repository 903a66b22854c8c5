UPDATE jobs
SET
    state = ?3, version = ?4, tries_from = ?5, next_provider = ?6, next_primary = ?7, next_certificate = ?8,
    due_at = ?9, error_class = ?10, error_status = ?11, error_message = ?12, error_failover = ?13, updated_at = ?14
WHERE id = ?1
    -- The same fence as in complete.sql: a filled slot is never closed or reopened.
    AND version = ?2
    AND completed_by IS NULL
