CREATE SCHEMA IF NOT EXISTS onejob;
CREATE TABLE IF NOT EXISTS onejob.schema_version (
    version     bigint       NOT NULL,
    name        text         NOT NULL,
    applied_at  timestamptz  NOT NULL DEFAULT now(),
    CONSTRAINT schema_version_pkey PRIMARY KEY (version)
);
-- Keeps two runs apart; whoever only reads is not in its way.
LOCK TABLE onejob.schema_version IN EXCLUSIVE MODE;
