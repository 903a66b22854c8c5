SELECT lease_until, last_run FROM verifications WHERE task = ?1 AND provider = ?2
