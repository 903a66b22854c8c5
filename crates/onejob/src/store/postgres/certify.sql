INSERT INTO onejob.certificates (id, task, provider, contract_digest, model, detail, issued_at, valid_until)
VALUES ($1::uuid, $2::text, $3::text, $4::bytea, $5::text, $6::text, $7::bigint, $8::bigint)
