"""The process that writes the reports nobody has to ask for: after jobs that ran for long, and once a day, into the folder of reports.

python -m assistant.host.report_writer

A process of its own, as none of the others can do it: the window may be closed and the assistant's host has ended when a job ends at
night, and the daemon must not know the assistant. The daemon starts it, by its name, while the settings ask for it (`scheduler.services.report_service`).
It waits for idle devices itself, so that no question of a person waits behind a report, then asks the host as any client does. It ends
with the daemon, and when the settings want it no more. What is still to be written is on disk: neither end loses it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator

from assistant.client import Assistant
from assistant.idle import Cancelled, run_when_idle
from assistant.reports import files
from assistant.reports.report import Report
from assistant.reports.schedule import (
    ReportBacklog,
    add_ended_jobs,
    forget,
    is_daily_report_due,
    load,
    save,
)
from scheduler.background.instance import alone
from scheduler.client import Client
from scheduler.protocol import paths
from scheduler.protocol.errors import DaemonGone, NotFound, UserError
from scheduler.protocol.settings import Settings
from scheduler.protocol.snapshot import Snapshot

LOOK_S = 10.0
"""How often it looks whether a job has ended."""
AGAIN_S = 60.0
"""After something went wrong, such as a full disk."""

_TAKEN = "another one writes the reports"
"""One that a daemon left that was killed: it goes on with the next daemon."""
_LOG = logging.getLogger("scribe")


class ReportWriter:
    """Looks, waits, writes. Every call blocks."""

    def __init__(self) -> None:
        self._settings = Settings()
        self._mark: ReportBacklog | None = None

    def turn(self) -> bool:
        """Look once, and write what is due; whether any is wanted at all. Raises DaemonGone, UserError."""
        with Client(start=False) as deck:
            self._settings = deck.snapshot().settings
            if self._settings.reports:
                self._mark = add_ended_jobs(deck, load(), self._settings, time.time())
                save(self._mark)
        while self._settings.reports and self._due():
            self._write_next()
        if not self._settings.reports:
            forget()  # what ends meanwhile is never reported on
        return self._settings.reports

    def _due(self) -> bool:
        assert self._mark is not None
        return bool(self._mark.jobs) or is_daily_report_due(self._mark, self._settings, time.time())

    def _write_next(self) -> None:
        """One report, once the devices are idle."""
        mark = self._mark
        assert mark is not None
        if not self._wait_for_idle():
            return
        now = time.time()
        done = mark.without_first() if mark.jobs else mark.with_daily_report_until(now)
        try:
            if mark.jobs:
                self._keep(Assistant().report(mark.jobs[0], when="now").report)
            else:
                self._keep(Assistant().report(since=mark.day, when="now", daily=True).report)
        except NotFound as e:
            _LOG.info("nothing to write: %s", e)
        except RuntimeError:
            save(done)  # a bug of ours is loud, and not met again and again
            raise
        self._mark = done
        save(done)

    def _keep(self, report: Report | None) -> None:
        assert report is not None, "the assistant answers a report with one"
        _LOG.info("wrote %s", files.keep(report))

    def _wait_for_idle(self) -> bool:
        """False where the settings want no report any more."""

        def heard(snapshots: Iterator[Snapshot]) -> Iterator[Snapshot]:
            for snapshot in snapshots:
                self._settings = snapshot.settings
                yield snapshot

        with Client(start=False) as deck:
            try:
                run_when_idle(
                    lambda: None,
                    heard(deck.subscribe(live=False)),
                    lambda: not self._settings.reports,
                )
            except Cancelled:
                return False
        return True


def main() -> int:
    """Until the daemon ends, or nothing is wanted."""
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        with alone(paths.home() / "scribe.lock", _TAKEN):
            return _work(ReportWriter())
    except DaemonGone:
        return 0
    except UserError as e:
        _LOG.info("ends: %s", e)
        return 0 if str(e) == _TAKEN else 1


def _work(writer: ReportWriter) -> int:
    while True:
        try:
            if not writer.turn():
                return 0
            time.sleep(LOOK_S)
        except DaemonGone:
            raise
        except UserError as e:
            _LOG.info("tried in vain: %s", e)
            time.sleep(AGAIN_S)


if __name__ == "__main__":
    sys.exit(main())
