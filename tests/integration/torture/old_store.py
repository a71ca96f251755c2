"""Write a store of GPU Deck 0.1.0 (schema 1), with a job in every state that an update can find."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

VICTIM = Path(__file__).with_name("victim.py")

_SCHEMA = """
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, submitted REAL NOT NULL,
  status TEXT NOT NULL, spec TEXT NOT NULL, env TEXT NOT NULL, state TEXT NOT NULL);
CREATE INDEX jobs_by_status ON jobs (status);
CREATE TABLE samples (device TEXT NOT NULL, time REAL NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (device, time)) WITHOUT ROWID;
CREATE INDEX samples_by_time ON samples (time);
CREATE TABLE queue (paused INTEGER NOT NULL);
INSERT INTO queue VALUES (0);
PRAGMA user_version = 1;
"""
_STATES = [
    {"type": "done", "started": 1.0, "at": 2.0, "devices": ["cpu"], "result": {"tflops": 1.5},
     "large": False},
    {"type": "failed", "started": 1.0, "at": 2.0, "reason": "exit code 3", "code": 3,
     "devices": [], "result": None, "large": False},
    {"type": "cancelled", "at": 2.0, "started": None, "devices": []},
    {"type": "running", "attempt": "a" * 32, "devices": ["cpu"], "at": 1.0, "runner": 1,
     "started": 1, "boot": "another", "progress": None, "stopping": False},
    {"type": "starting", "attempt": "b" * 32, "devices": [], "at": 1.0},
    {"type": "queued", "reason": "not looked at yet"},
    {"type": "queued", "reason": "the queue is paused"},
]  # fmt: skip
ENDS = ["done", "failed", "cancelled", "lost", "done", "done", "done"]
"""How each ends under the current daemon."""


def write(file: Path, ledger: Path) -> None:
    """Write one job in each state; those that wait append to `ledger` when they run."""
    with sqlite3.connect(file) as db:
        db.executescript(_SCHEMA)
        for number, state in enumerate(_STATES):
            argv = [sys.executable, "-S", "-E", str(VICTIM), "quick", str(ledger), "old"]
            spec = {
                "argv": argv,
                "name": f"old {number}",
                "cwd": "/",
                "env": {},
                "gpus": number % 2,
                "workload": None,
                "params": {},
                "kind": "",
            }
            row = (
                1000.0 + number,
                state["type"],
                json.dumps(spec),
                '{"TOKEN":"x"}',
                json.dumps(state),
            )
            db.execute(
                "INSERT INTO jobs (submitted, status, spec, env, state) VALUES (?, ?, ?, ?, ?)", row
            )
    db.close()
