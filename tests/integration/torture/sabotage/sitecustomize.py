"""Inject faults at the edges of the daemon under torture, which finds this module by PYTHONPATH.

`$TORTURE_FOLDER/plan` arms one fault, `{"kind": .., "at": .., "n": ..}`. It strikes the n-th time
that its place is reached, appends a line to `$TORTURE_FOLDER/struck` and disarms itself.
`$TORTURE_FOLDER/clock` holds the seconds by which the clock is wrong.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(os.environ.get("TORTURE_FOLDER", ""))
RUNNER = Path(__file__).with_name("runner_cut_short.py")


class _Plan:
    """Keep the armed fault, and count how often its place was reached."""

    def __init__(self) -> None:
        self._armed = ""
        self._reached = 0
        self.gate_shut = False
        """True once the runner of a job was written, and before that is committed."""

    def strikes(self, kind: str, at: str) -> bool:
        """Return whether the fault strikes here and now, and disarm it if so."""
        try:
            text = (FOLDER / "plan").read_text()
            plan = json.loads(text)
        except (OSError, ValueError):
            return False
        if text != self._armed:
            self._armed, self._reached = text, 0
        if (plan["kind"], plan["at"]) != (kind, at):
            return False
        self._reached += 1
        if self._reached < plan["n"]:
            return False
        (FOLDER / "plan").unlink()
        return True

    def kill(self, kind: str, at: str) -> None:
        if self.strikes(kind, at):
            strike(f"{kind} {at}")
            os.kill(os.getpid(), signal.SIGKILL)


def strike(words: str) -> None:
    fd = os.open(FOLDER / "struck", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, words.encode() + b"\n")
    os.close(fd)


def sabotage() -> None:
    """Wrap SQLite, the start of children and the clock of this process."""
    plan = _Plan()
    connect, popen, clock = sqlite3.connect, subprocess.Popen, time.time

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            word = sql.split(None, 1)[0].upper().rstrip(";")
            if word not in ("BEGIN", "COMMIT"):
                return super().execute(sql, *values)
            plan.kill("daemon", f"before {word}")
            if word == "COMMIT" and plan.strikes("daemon", "sync of COMMIT"):
                strike("daemon sync of COMMIT")
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            cursor = super().execute(sql, *values)
            plan.kill("daemon", f"after {word}")
            if word == "COMMIT" and plan.gate_shut:
                plan.gate_shut = False
                plan.kill("daemon", "before the gate opens")
            return cursor

        def executemany(self, sql: str, rows: Iterable[tuple[object, ...]], /) -> sqlite3.Cursor:  # type: ignore[override]
            found = list(rows)
            plan.gate_shut |= sql.startswith("UPDATE") and any("running" in row for row in found)
            return super().executemany(sql, found)

    class Popen(popen):  # type: ignore[type-arg, misc]
        def __init__(self, args: list[str], *rest: object, **more: object) -> None:
            number = next((i for i, word in enumerate(args) if word.endswith("runner.py")), None)
            if number is None:
                super().__init__(args, *rest, **more)
                return
            plan.kill("daemon", "before spawn")
            for at in (
                "gate",
                "lock",
                "before ticket",
                "after ticket",
                "before job",
                "after job",
                "before sync",
                "before rename",
                "after rename",
            ):
                if plan.strikes("runner", at):
                    args = [
                        *args[:number],
                        str(RUNNER),
                        args[number],
                        at,
                        str(FOLDER),
                        *args[number + 1 :],
                    ]
                    break
            super().__init__(args, *rest, **more)
            plan.kill("daemon", "after spawn")

    def wrong_time() -> float:
        try:
            return clock() + float((FOLDER / "clock").read_text())
        except (OSError, ValueError):
            return clock()

    sqlite3.connect = lambda *args, **more: connect(*args, **more, factory=Connection)
    subprocess.Popen = Popen  # type: ignore[misc]
    time.time = wrong_time


if "gpudeck.scheduler.daemon" in sys.orig_argv and FOLDER.name:
    sabotage()
