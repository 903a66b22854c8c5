SELECT job_id FROM attempts WHERE id = ?1
