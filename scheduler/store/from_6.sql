-- From schema 6 to 7. A submission has a token.
CREATE TABLE submissions (             -- the newest, so that one that is sent again is not queued again; written with its jobs
    id     INTEGER PRIMARY KEY,
    token  TEXT NOT NULL UNIQUE,       -- chosen by the client
    digest TEXT NOT NULL,              -- of what was submitted (see submission.digest_of)
    first  INTEGER NOT NULL,           -- the lowest number of its jobs
    count  INTEGER NOT NULL            -- of its jobs, whose numbers follow each other
);
