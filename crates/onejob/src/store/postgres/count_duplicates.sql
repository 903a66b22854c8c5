-- Not a change of the job: who remembers it remembers enough, and takes the count from here.
UPDATE onejob.jobs
SET duplicates = jobs.duplicates + new.times
FROM unnest($1::uuid[], $2::bigint[]) AS new (id, times)
WHERE jobs.id = new.id
RETURNING jobs.id, jobs.duplicates, jobs.revision
