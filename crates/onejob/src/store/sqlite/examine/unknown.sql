SELECT count(*), min(unknown_since) FROM attempts WHERE state = 'unknown'
