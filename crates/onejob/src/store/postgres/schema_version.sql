SELECT coalesce(max(version), 0) FROM onejob.schema_version
