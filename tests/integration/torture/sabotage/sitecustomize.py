"""Found through PYTHONPATH by the daemon under torture, before any of its own modules: faults at its edges, none inside it.

`$TORTURE_FOLDER/plan` arms one fault, `{"kind": .., "at": .., "n": ..}`; it strikes at the n-th time that its place is reached, says
so on a line of `$TORTURE_FOLDER/struck` and disarms itself. `$TORTURE_FOLDER/clock` holds seconds by which the clock is wrong.
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
    """The armed fault, and how often its place was reached since it was armed."""

    def __init__(self) -> None:
        self._armed = ""
        self._reached = 0
        self.gate_shut = False
        """Who runs a job was written, and not committed yet."""

    def due(self, kind: str, at: str) -> bool:
        """Whether the fault strikes here and now; then it is noted and disarmed."""
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
        if self.due(kind, at):
            strike(f"{kind} {at}")
            os.kill(os.getpid(), signal.SIGKILL)


def strike(words: str) -> None:
    fd = os.open(FOLDER / "struck", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, words.encode() + b"\n")
    os.close(fd)


def sabotage() -> None:
    """Put the faults between this process and SQLite, its children and its clock."""
    plan = _Plan()
    connect, popen, clock = sqlite3.connect, subprocess.Popen, time.time

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            word = sql.split(None, 1)[0].upper().rstrip(";")
            if word not in ("BEGIN", "COMMIT"):
                return super().execute(sql, *values)
            plan.kill("daemon", f"before {word}")
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
                "before job",
                "after job",
                "before sync",
                "before rename",
                "after rename",
            ):
                if plan.due("runner", at):
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


if "scheduler.daemon" in sys.orig_argv and FOLDER.name:
    sabotage()
