INSERT INTO onejob.queue (job_id, provider, priority, due_at, deadline)
SELECT new.job_id, new.provider, new.priority, new.due_at, new.deadline
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
    AS new (job_id, provider, priority, due_at, deadline)
