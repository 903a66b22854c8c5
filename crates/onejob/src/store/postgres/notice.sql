INSERT INTO onejob.notices (job_id, id, attempt_id, at, kind, detail)
SELECT new.job_id, new.id, new.attempt_id, new.at, new.kind, new.detail
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[])
    AS new (job_id, id, attempt_id, at, kind, detail)
