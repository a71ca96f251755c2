-- From schema 8 to 9. Submissions are found by their jobs. A job that waits for want of its environment says so by a value.
CREATE INDEX submissions_by_first ON submissions (first);
UPDATE jobs SET state = json_set(CAST(state AS TEXT), '$.wait', json('{"type":"environmentmissing"}'))
WHERE status = 'queued' AND CASE WHEN json_valid(CAST(state AS TEXT)) THEN json_extract(CAST(state AS TEXT), '$.reason') END
    = 'is held: the environment it was submitted with is lost or damaged in the store. Submit it again, and cancel this one';
