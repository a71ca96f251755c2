"""What can be seen from outside: the store, the ledger, and the processes of jobs."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from tests.integration.torture.verdict import Row
from tests.support import lives


def read_store(file: Path) -> dict[int, Row]:
    """All jobs, by number."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return {job: Row(name, status) for job, name, status in db.execute("SELECT id, json_extract(spec, '$.name'), status FROM jobs")}


def read_ledger(file: Path) -> list[tuple[int, str]]:
    """Job and attempt, in the order in which they ran."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(job), attempt) for job, attempt in (line.split() for line in lines)]


def processes_with(nonce: str) -> list[str]:
    """The command lines of living processes that carry it."""
    return [command_of(pid).replace(b"\0", b" ").decode(errors="replace") for pid in users_of_job(nonce)]


def users_of_job(nonce: str) -> list[int]:
    return [
        int(e.name)
        for e in Path("/proc").iterdir()
        if e.name.isdigit() and nonce.encode() in command_of(int(e.name)) and lives(int(e.name))
    ]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def job_of(pid: int) -> bytes:
    """Number of the job that this process belongs to."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    return next((v.partition(b"=")[2] for v in variables if v.startswith(b"GPUDECK_JOB=")), b"")
