DELETE FROM notices WHERE job_id = ?1
