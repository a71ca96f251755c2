-- Schema 11. One writing process and one connection (see store.py); every transition of a job is one transaction.
CREATE TABLE jobs (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    submitted REAL NOT NULL,
    status    TEXT NOT NULL,           -- queued, starting, running, done, failed, cancelled, lost
    spec      TEXT NOT NULL,           -- JSON of jobs.Spec, without its environment
    env       TEXT NOT NULL,           -- digest of its environment; empty once it has ended
    state     TEXT NOT NULL,           -- JSON of jobs.State
    place     REAL,                    -- among those that wait; NULL: its number
    tries     INTEGER NOT NULL DEFAULT 0,
    usage     TEXT NOT NULL DEFAULT 'null', -- JSON of jobs.Usage
    seal      TEXT NOT NULL DEFAULT ''      -- checksum of id, submitted and spec (see checksums.checksum)
);
CREATE INDEX jobs_by_status ON jobs (status);
CREATE INDEX jobs_by_env ON jobs (env) WHERE env != '';

CREATE TABLE environments (
    digest TEXT PRIMARY KEY,           -- SHA-256 of env, in hex
    env    TEXT NOT NULL               -- JSON; may hold secrets: read only to start a job, never sent to a client, gone with its last job
);

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

CREATE TABLE alerts (
    id   INTEGER PRIMARY KEY,
    open INTEGER NOT NULL,             -- 1: its cause is still there
    data TEXT NOT NULL                 -- JSON of telemetry.snapshot.Alert
);

CREATE TABLE search (                  -- what jobs are found by: narrow rows, so that a search reads little; written with the job itself
    job       INTEGER PRIMARY KEY,
    outcome   TEXT NOT NULL,           -- see search.outcome
    submitted REAL NOT NULL,
    ended     REAL,                    -- NULL: it waits or runs
    "group"   TEXT NOT NULL,
    devices   TEXT NOT NULL,           -- ids, each between blanks
    words     TEXT NOT NULL,           -- see search.searched
    user      INTEGER                  -- who submitted it to a shared daemon, and alone may search its words
);

CREATE TABLE submissions (             -- the newest, so that one that is sent again is not queued again; written with its jobs
    id     INTEGER PRIMARY KEY,
    token  TEXT NOT NULL UNIQUE,       -- chosen by the client
    digest TEXT NOT NULL,              -- of what was submitted (see submission.digest_of)
    first  INTEGER NOT NULL,           -- the lowest number of its jobs
    count  INTEGER NOT NULL            -- of its jobs, whose numbers follow each other
);
CREATE INDEX submissions_by_first ON submissions (first);

CREATE TABLE queue (
    paused INTEGER NOT NULL            -- 1: start nothing new
);
INSERT INTO queue VALUES (0);
