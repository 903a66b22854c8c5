DELETE FROM onejob.notices WHERE job_id = ANY ($1::uuid[])
