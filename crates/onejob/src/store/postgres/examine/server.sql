SELECT
    current_setting('server_version_num')::bigint, current_setting('server_version'), current_user::text,
    current_database()::text, pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'),
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
