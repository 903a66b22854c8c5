SELECT
    slot_name::text, active, xmin IS NOT NULL OR catalog_xmin IS NOT NULL,
    CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) END::bigint
FROM pg_replication_slots
ORDER BY slot_name
