SELECT jobs.owner, jobs.idempotency_key, jobs.id
FROM unnest($1::text[], $2::text[]) AS wanted (owner, idempotency_key)
JOIN onejob.jobs ON jobs.owner = wanted.owner AND jobs.idempotency_key = wanted.idempotency_key
