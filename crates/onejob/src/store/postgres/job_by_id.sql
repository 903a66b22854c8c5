SELECT wanted.id FROM unnest($1::uuid[]) AS wanted (id)
