-- R10: a job that is told to anybody is on the disk, whatever the session was told before; for this
-- transaction only. `remote_apply` says more and stays.
SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
