INSERT INTO onejob.notices (job_id, id, attempt_id, at, kind, detail)
SELECT new.job_id, new.id, new.attempt_id, new.at, new.kind, new.detail
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[])
    AS new (job_id, id, attempt_id, at, kind, detail)
-- What can be said again and again must not fill the table; what one batch adds counts from the next on.
WHERE (
    SELECT count(*) FROM onejob.notices AS old WHERE old.job_id = new.job_id AND old.kind = new.kind
) < $7::bigint
