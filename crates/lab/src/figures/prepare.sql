-- What the scripts share: ids that grow with time, as those of the store do.
CREATE FUNCTION public.figures_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
SELECT (
    lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
    || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15)
)::uuid
$$;
CREATE FUNCTION public.figures_owner() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT 'user_' || floor(random() * 10000)::int
$$;
