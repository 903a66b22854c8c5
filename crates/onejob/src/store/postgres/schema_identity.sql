-- Tells two databases apart: no two were made in the same microsecond, unless one is a copy of the other.
SELECT (extract(epoch FROM applied_at) * 1000000)::bigint FROM onejob.schema_version WHERE version = 1
