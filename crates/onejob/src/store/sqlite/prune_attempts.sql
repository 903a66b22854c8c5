DELETE FROM attempts WHERE job_id = ?1
