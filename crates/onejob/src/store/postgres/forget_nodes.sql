-- Who is not here is dead as well. Rows are kept for people.
DELETE FROM onejob.nodes WHERE ended_at < onejob.now_ms() - $1::bigint
