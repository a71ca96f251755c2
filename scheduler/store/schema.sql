-- Schema 1. One writing process and one connection (see store.py); every transition of a job is one transaction.
CREATE TABLE jobs (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    submitted REAL NOT NULL,
    status    TEXT NOT NULL,           -- queued, starting, running, done, failed, cancelled, lost
    spec      TEXT NOT NULL,           -- JSON of jobs.Spec, without its environment
    env       TEXT NOT NULL,           -- JSON; may hold secrets: read only to start the job, never sent to a client, emptied when it ends
    state     TEXT NOT NULL            -- JSON of jobs.State
);
CREATE INDEX jobs_by_status ON jobs (status);

CREATE TABLE samples (
    device TEXT NOT NULL,
    time   REAL NOT NULL,
    data   BLOB NOT NULL,              -- JSON of devices.model.Reading
    PRIMARY KEY (device, time)
) WITHOUT ROWID;
CREATE INDEX samples_by_time ON samples (time);

CREATE TABLE queue (
    paused INTEGER NOT NULL            -- 1: start nothing new
);
INSERT INTO queue VALUES (0);
