-- Of this database: only these keep its dead rows.
SELECT
    'session ' || pid, coalesce(usename::text, ''), coalesce(application_name, ''), coalesce(state, ''),
    floor(extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    AND backend_type = 'client backend'
UNION ALL
SELECT
    'prepared transaction ' || gid, owner::text, '', 'prepared',
    floor(extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint
FROM pg_prepared_xacts
WHERE database = current_database()
ORDER BY 5 DESC
LIMIT 20
