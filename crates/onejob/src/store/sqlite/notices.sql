SELECT at, attempt_id, kind, detail FROM notices WHERE job_id = ?1 ORDER BY seq
