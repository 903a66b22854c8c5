SELECT to_regclass('onejob.schema_version') IS NOT NULL
