-- Whoever changes a job or one of its attempts without remembering it holds its row; all in the order
-- of their ids, so that nobody waits in a circle.
SELECT jobs.id
FROM unnest($1::uuid[]) AS wanted (id)
JOIN onejob.jobs ON jobs.id = wanted.id
ORDER BY jobs.id
FOR UPDATE OF jobs
