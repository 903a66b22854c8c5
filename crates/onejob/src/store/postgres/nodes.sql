SELECT id, name, entered_at, lease_until, ended_at FROM onejob.nodes ORDER BY id DESC
