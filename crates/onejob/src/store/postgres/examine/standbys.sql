SELECT
    coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, ''),
    floor(extract(epoch FROM coalesce(replay_lag, interval '0')) * 1000)::bigint
FROM pg_stat_replication
ORDER BY application_name
