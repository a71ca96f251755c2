"""The process that writes the reports of the settings.

    python -m gpudeck.assistant.host.report_writer

It writes a report after each long job and once a day, into the folder of reports. It is a process
of its own because the window and the assistant's process may have ended when a job ends at night,
and the daemon must not know the assistant. The daemon starts it while the settings ask for reports
(`gpudeck.scheduler.services.helper_service`), and it ends with the daemon. A report waits for an
idle GPU only if a model on a GPU writes its text; nobody's question waits behind it. The list of
reports to write is on disk and survives the end of this process.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time

import msgspec

from gpudeck.assistant.client import Assistant
from gpudeck.assistant.reports import files
from gpudeck.assistant.reports.markdown import digest
from gpudeck.assistant.reports.report import Report
from gpudeck.assistant.reports.schedule import (
    ReportBacklog,
    add_ended_jobs,
    forget,
    is_daily_report_due,
    load,
    save,
)
from gpudeck.scheduler.background.instance import run_alone
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.notices.envelope import COMMAND, Envelope
from gpudeck.scheduler.notices.notice import Notice
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import DaemonGone, NotFound, UserError

POLL_S = 10.0
"""The time between two checks for jobs that have ended."""
_SEND_S = 10.0
RETRY_S = 60.0
"""The pause after an error, such as a full disk."""

_LOG = logging.getLogger("report writer")


def write_due_reports() -> bool:
    """Write all reports that are due now. Return False if the settings ask for none.

    Raises DaemonGone and UserError.
    """
    with Client(start=False) as daemon:
        settings, backlog = daemon.snapshot().settings, load()
        if settings.reports:
            backlog = add_ended_jobs(daemon, backlog, settings, time.time())
            save(backlog)
        while settings.reports and (
            backlog.jobs or is_daily_report_due(backlog, settings, time.time())
        ):
            backlog = _write_next(backlog, settings.webhook * settings.report_digest)
            settings = daemon.snapshot().settings
    if not settings.reports:
        forget()  # no report is written later on jobs that end while reports are off
    return settings.reports


def _write_next(backlog: ReportBacklog, webhook: str) -> ReportBacklog:
    """Write the first report of the backlog, and return and save the backlog without it.

    The daily one is also sent to `webhook`, unless that is empty.
    """
    assistant, now = Assistant(), time.time()
    done = backlog.without_first() if backlog.jobs else backlog.with_daily_report_until(now)
    try:
        if backlog.jobs:
            report = assistant.report(backlog.jobs[0]).report
        else:
            report = assistant.report(since=backlog.day, daily=True).report
        assert report is not None, "the assistant answers a report request with a report"
        _LOG.info("wrote %s", files.keep(report))
        if report.kind == "daily" and webhook:
            _send(webhook, report)
    except NotFound as e:
        _LOG.info("nothing to write: %s", e)
    except RuntimeError:
        save(done)  # a bug of ours must not stop the process at the same report again and again
        raise
    save(done)
    return done


def _send(url: str, report: Report) -> None:
    """Send what a report begins with to a webhook, which shows `text`.

    A process of its own sends it, as it does alerts: a hang stops nothing else, and no log has the
    address.
    """
    envelope = Envelope("webhook", url, Notice("end", report.title, digest(report)))
    try:
        sent = subprocess.run(
            [*COMMAND, str(_SEND_S)], input=msgspec.json.encode(envelope), capture_output=True,
            timeout=2 * _SEND_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        _LOG.warning("the daily report could not be sent: no answer within %g s", _SEND_S)
        return
    if sent.returncode:
        problem = sent.stdout.decode(errors="replace").strip()
        _LOG.warning("the daily report could not be sent: %s", problem or "its process failed")


def main() -> int:
    """Write reports until the daemon ends or the settings ask for none; return the exit status."""
    # A killed daemon left the other one; it goes on with the next daemon.
    lock = paths.home() / "scribe.lock"
    return run_alone(lock, "another process writes the reports", _work)


def _work() -> int:
    while True:
        try:
            if not write_due_reports():
                return 0
            time.sleep(POLL_S)
        except DaemonGone:
            return 0
        except UserError as e:
            _LOG.info("retrying in %.0f s: %s", RETRY_S, e)
            time.sleep(RETRY_S)


if __name__ == "__main__":
    sys.exit(main())
