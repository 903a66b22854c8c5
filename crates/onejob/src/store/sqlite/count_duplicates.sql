UPDATE jobs SET duplicates = ?2 WHERE id = ?1
