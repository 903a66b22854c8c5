SELECT at, attempt_id, kind, detail FROM onejob.notices WHERE job_id = $1::uuid ORDER BY id
