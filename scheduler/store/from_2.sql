-- From schema 2 to 3.
CREATE TABLE alerts (
    id   INTEGER PRIMARY KEY,
    open INTEGER NOT NULL,             -- 1: its cause is still there
    data TEXT NOT NULL                 -- JSON of telemetry.snapshot.Alert
);
