SELECT lease_until, last_run FROM onejob.verifications WHERE task = $1::text AND provider = $2::text
