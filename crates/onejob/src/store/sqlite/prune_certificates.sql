DELETE FROM certificates
WHERE id IN (
    SELECT id FROM certificates
    -- Ids begin with the moment they were drawn, and none ends before it was issued.
    WHERE id < ?1 AND min(valid_until, coalesce(suspended_at, valid_until)) < ?2
    ORDER BY id
    LIMIT ?3
)
