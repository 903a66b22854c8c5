DELETE FROM onejob.attempts WHERE job_id = ANY ($1::uuid[])
