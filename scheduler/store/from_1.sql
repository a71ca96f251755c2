-- From schema 1 to 2. A job from before has no timeline but its submission, which it tells itself.
ALTER TABLE jobs ADD COLUMN place REAL;
ALTER TABLE jobs ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN usage TEXT NOT NULL DEFAULT 'null';
CREATE TABLE events (                  -- what each job went through, written with the transition itself
    id   INTEGER PRIMARY KEY,
    job  INTEGER NOT NULL,
    time REAL NOT NULL,
    what TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX events_by_job ON events (job);
CREATE TABLE groups (
    name    TEXT PRIMARY KEY,
    "limit" INTEGER NOT NULL,          -- jobs at once; 0: any number
    paused  INTEGER NOT NULL
);
INSERT INTO events (job, time, what, text) SELECT id, submitted, 'submitted', '' FROM jobs ORDER BY id;
