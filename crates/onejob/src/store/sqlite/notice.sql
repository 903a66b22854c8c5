INSERT INTO notices (job_id, attempt_id, at, kind, detail) VALUES (?1, ?2, ?3, ?4, ?5)
