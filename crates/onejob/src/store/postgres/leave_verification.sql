UPDATE onejob.verifications SET run = NULL, running_since = NULL, lease_until = NULL
WHERE task = $1::text AND provider = $2::text AND run = $3::uuid
