-- From schema 3 to 4. Of jobs submitted from now on the case of all letters is folded; of these here only that of ASCII.
CREATE TABLE search (                  -- what jobs are found by: narrow rows, so that a search reads little; written with the job itself
    job       INTEGER PRIMARY KEY,
    outcome   TEXT NOT NULL,           -- see search.outcome
    submitted REAL NOT NULL,
    ended     REAL,                    -- NULL: it waits or runs
    "group"   TEXT NOT NULL,
    devices   TEXT NOT NULL,           -- ids, each between blanks
    words     TEXT NOT NULL            -- see search.searched
);
WITH parts AS (                        -- of a job whose row is garbled nothing is known; it must not keep the others from being found
    SELECT id, status, submitted, iif(json_valid(spec), spec, '{}') AS spec, iif(json_valid(state), state, '{}') AS state FROM jobs
)
INSERT INTO search
SELECT id,
       iif(status = 'done' AND coalesce(state ->> '$.result.verdict', 'pass') NOT LIKE 'pass%', 'rejected', status),
       submitted,
       iif(status IN ('done', 'failed', 'cancelled', 'lost'), state ->> '$.at', NULL),
       coalesce(spec ->> '$.group', ''),
       coalesce((SELECT ' ' || group_concat(value, ' ') || ' ' FROM json_each(state, '$.devices')), ''),
       substr(lower(concat_words), 1, 2000)
FROM (
    SELECT *,
           coalesce(spec ->> '$.name', '') || ' ' || coalesce(spec ->> '$.notes', '')
           || coalesce((SELECT ' ' || group_concat(value, ' ') FROM json_each(spec, '$.tags')), '')
           || coalesce((SELECT ' ' || group_concat(value, ' ') FROM json_each(spec, '$.params')), '')
           || coalesce((SELECT ' ' || group_concat(value, ' ') FROM json_each(spec, '$.argv')), '') AS concat_words
    FROM parts
);
