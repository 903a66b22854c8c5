SELECT
    relname::text, n_live_tup, n_dead_tup,
    floor(extract(epoch FROM now() - greatest(last_autovacuum, last_vacuum)) * 1000)::bigint,
    pg_total_relation_size(relid)
FROM pg_stat_user_tables
WHERE schemaname = 'onejob'
ORDER BY pg_total_relation_size(relid) DESC, relname
