-- From schema 10 to 11. Users of a shared daemon search the words of their own jobs alone. A job whose spec is damaged is nobody's.
ALTER TABLE search ADD COLUMN user INTEGER;
UPDATE search SET user = (
    SELECT CASE WHEN json_valid(CAST(spec AS TEXT)) THEN json_extract(CAST(spec AS TEXT), '$.user') END FROM jobs WHERE id = job
);
