-- The history, schema 1. A file of its own: its writes wait for no job's commit, and damage to one leaves the other whole.
CREATE TABLE blocks (                  -- stretches of one device's past; see telemetry/tiers.py
    id     INTEGER PRIMARY KEY,
    device TEXT NOT NULL,
    tier   INTEGER NOT NULL,
    since  REAL NOT NULL,              -- time of the first row
    until  REAL NOT NULL,              -- and of the last
    rows   INTEGER NOT NULL,
    rolled INTEGER NOT NULL,           -- 1: full, and in the next tier, too
    times  BLOB NOT NULL,
    counts BLOB NOT NULL
);
CREATE INDEX blocks_by_time ON blocks (device, tier, until);
CREATE INDEX blocks_by_age ON blocks (tier, until);

CREATE TABLE columns (                 -- what a block says of one field; see telemetry/packed.py
    block INTEGER NOT NULL,
    field TEXT NOT NULL,
    data  BLOB NOT NULL
);
CREATE UNIQUE INDEX columns_by_block ON columns (block, field);

CREATE TABLE journal (                 -- readings that no block has yet, in the order they came
    id     INTEGER PRIMARY KEY,
    device TEXT NOT NULL,
    data   BLOB NOT NULL
);

CREATE TABLE annotations (
    time   REAL NOT NULL,
    kind   TEXT NOT NULL,
    device TEXT NOT NULL,
    until  REAL,                       -- NULL: goes on
    text   TEXT NOT NULL,
    job    INTEGER,
    name   TEXT NOT NULL,
    PRIMARY KEY (time, kind, device, name)
) WITHOUT ROWID;
