SELECT jobs.id
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS seen (id, state, updated_at)
JOIN onejob.jobs ON jobs.id = seen.id
WHERE jobs.state <> seen.state OR jobs.updated_at <> seen.updated_at
