-- A late attempt of a won job has ended: nothing of the job changes but the time.
UPDATE jobs SET updated_at = ?3 WHERE id = ?1 AND version = ?2
