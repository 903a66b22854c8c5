DELETE FROM onejob.jobs WHERE id = ANY ($1::uuid[])
