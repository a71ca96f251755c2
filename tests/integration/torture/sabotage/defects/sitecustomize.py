"""Plant a defect in the daemon, which finds this module by PYTHONPATH.

It strikes jobs of one kind each: `quick` runs twice in one attempt, `slow` is acknowledged and not
stored, and `hopeless` is tried again more often than was asked for.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable
from typing import Any

import msgspec


def plant() -> None:
    """Replace what launches, stores and retries jobs."""
    import gpudeck.scheduler.executors.launch as launch
    import gpudeck.scheduler.queue.retry as retry

    connect, request, again = sqlite3.connect, launch.launch_request, retry.next_attempt

    def twice(spec: Any, *rest: Any, **more: Any) -> Any:
        if "quick" in spec.argv:
            shell = ["sh", "-c", '"$@"; "$@"', "sh"]
            spec = msgspec.structs.replace(spec, argv=(*shell, *spec.argv))
        return request(spec, *rest, **more)

    def endlessly(job: Any, *rest: Any) -> Any:
        if "hopeless" in job.spec.argv and job.tries < 4:
            job = msgspec.structs.replace(
                job, spec=msgspec.structs.replace(job.spec, retries=9, backoff=0.05)
            )
        return again(job, *rest)

    class Forgetful(sqlite3.Connection):
        forgets = False

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            self._listen(sql, values)
            if self.forgets and sql.upper().startswith("COMMIT"):
                self.forgets, sql = False, "ROLLBACK"
            return super().execute(sql, *values)

        def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
            found = list(rows)
            self._listen(sql, found)
            return super().executemany(sql, found)

        def _listen(self, sql: str, values: object) -> None:
            self.forgets |= "INSERT INTO jobs" in sql and '"slow"' in repr(values)

    launch.launch_request = twice
    retry.next_attempt = endlessly
    sqlite3.connect = lambda *args, **more: connect(*args, **more, factory=Forgetful)


if "gpudeck.scheduler.daemon" in sys.orig_argv:
    plant()
