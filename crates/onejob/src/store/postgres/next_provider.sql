-- A step from one provider's line to the next.
SELECT provider FROM onejob.queue WHERE provider > $1::text ORDER BY provider LIMIT 1
