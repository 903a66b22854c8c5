INSERT INTO notices (job_id, attempt_id, at, kind, detail)
SELECT ?1, ?2, ?3, ?4, ?5
-- What can be said again and again must not fill the file.
WHERE (SELECT count(*) FROM notices WHERE job_id = ?1 AND kind = ?4) < ?6
