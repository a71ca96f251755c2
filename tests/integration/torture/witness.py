"""Read the store, the ledger and the processes of jobs from outside the daemon."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

from tests.integration.torture.verdict import LedgerLine, StoredJob
from tests.support import lives


def read_store(file: Path) -> dict[int, StoredJob]:
    """Return all jobs, by number."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        rows = [
            (job, json.loads(spec), status)
            for job, spec, status in db.execute("SELECT id, spec, status FROM jobs")
        ]
    return {
        job: StoredJob(
            spec["name"], status, tuple(spec.get("after", ())), tuple(spec.get("after_any", ()))
        )
        for job, spec, status in rows
    }


def read_ledger(file: Path) -> list[LedgerLine]:
    """Return what the jobs wrote, in that order."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [LedgerLine(int(job), attempt, bool(ends)) for job, attempt, *ends in lines]


def processes_with(nonce: str) -> list[str]:
    """Return the job and command line of each living process whose command holds the nonce."""
    return [f"job {job_of(pid).decode()}: {_words(pid)}" for pid in users_of_job(nonce)]


def _words(pid: int) -> str:
    return command_of(pid).replace(b"\0", b" ").decode(errors="replace")


def users_of_job(nonce: str) -> list[int]:
    """Return the pids of these processes."""
    return [
        int(e.name)
        for e in Path("/proc").iterdir()
        if e.name.isdigit() and nonce.encode() in command_of(int(e.name)) and lives(int(e.name))
    ]


def command_of(pid: int) -> bytes:
    """Return the command line of a process; empty if it ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def job_of(pid: int) -> bytes:
    """Return the number of the job that a process belongs to."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    return next((v.partition(b"=")[2] for v in variables if v.startswith(b"GPUDECK_JOB=")), b"")
