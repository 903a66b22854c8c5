INSERT INTO onejob.schema_version (version, name) VALUES ($1::bigint, $2::text)
