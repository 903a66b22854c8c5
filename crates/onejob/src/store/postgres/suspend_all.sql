UPDATE onejob.certificates SET suspended_at = $3::bigint, suspended_because = $4::text
WHERE task = $1::text AND provider = $2::text AND suspended_at IS NULL
