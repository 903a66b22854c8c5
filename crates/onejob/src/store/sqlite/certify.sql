INSERT INTO certificates (id, task, provider, contract_digest, model, detail, issued_at, valid_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
