DELETE FROM onejob.queue WHERE job_id = ANY ($1::uuid[])
