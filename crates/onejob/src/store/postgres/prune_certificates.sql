DELETE FROM onejob.certificates
WHERE id = ANY (ARRAY (
    SELECT old.id FROM onejob.certificates AS old
    -- Ids begin with the moment they were drawn, and none ends before it was issued.
    WHERE old.id < $1::uuid AND least(old.valid_until, old.suspended_at) < $2::bigint
    ORDER BY old.id
    LIMIT $3::bigint
))
RETURNING id
