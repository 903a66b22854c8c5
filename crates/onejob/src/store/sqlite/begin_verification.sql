INSERT INTO verifications (task, provider, run, running_since, lease_until)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (task, provider) DO UPDATE
SET
    run = excluded.run, lease_until = excluded.lease_until,
    running_since = CASE WHEN run = excluded.run THEN running_since ELSE excluded.running_since END
-- One run at a time: nobody runs, or this one goes on, or the other one's lease has ended.
WHERE run IS NULL OR run = excluded.run OR lease_until <= ?4
