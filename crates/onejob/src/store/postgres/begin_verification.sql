INSERT INTO onejob.verifications AS known (task, provider, run, running_since, lease_until)
VALUES ($1::text, $2::text, $3::uuid, $4::bigint, $5::bigint)
ON CONFLICT (task, provider) DO UPDATE
SET
    run = excluded.run, lease_until = excluded.lease_until,
    running_since = CASE WHEN known.run = excluded.run THEN known.running_since ELSE excluded.running_since END
-- One run at a time: nobody runs, or this one goes on, or the other one's lease has ended.
WHERE known.run IS NULL OR known.run = excluded.run OR known.lease_until <= $4
RETURNING known.run
