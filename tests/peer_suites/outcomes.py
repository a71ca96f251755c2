"""Write down how every test ended, as it ends: a plugin of pytest.

OUTCOMES names the file, and SUITE what stands in its first column.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

_RAN = "ran by "


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a row for a test that was called, or that ended before its call."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the process that started the workers writes
    if report.when == "call" or (report.when == "setup" and not report.passed):
        printed = report.capstdout.splitlines()
        ran = sorted({line.removeprefix(_RAN) for line in printed if line.startswith(_RAN)})
        with Path(os.environ["OUTCOMES"]).open("a", newline="") as file:
            csv.writer(file).writerow(
                (
                    os.environ["SUITE"],
                    report.nodeid.split("/")[-1],
                    report.outcome,
                    " ".join(ran),
                    _reason(report),
                    f"{report.duration:.2f}",
                )
            )


def _reason(report: pytest.TestReport) -> str:
    """Return in one line why a test did not pass."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):  # a skipped test
        return report.longrepr[2].removeprefix("Skipped: ")[:200]
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr)).split())[:200]
