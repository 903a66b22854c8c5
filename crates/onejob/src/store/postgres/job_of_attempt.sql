SELECT attempts.job_id AS id FROM onejob.attempts WHERE attempts.id = $1::uuid
