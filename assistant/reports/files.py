"""Save reports as files, and keep the folder of those that are written automatically."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from gpudeck.assistant.reports.html import html
from gpudeck.assistant.reports.markdown import markdown
from gpudeck.assistant.reports.report import Report
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

FORMATS: dict[str, Callable[[Report], str]] = {".md": markdown, ".html": html}
MARK = "to_write.json"
"""The file in the folder that records which reports are still to be written."""
KEPT = 200
"""The most reports in the folder; the oldest ones are deleted."""


def folder() -> Path:
    """Return the folder of automatic reports, readable by its owner only. Raises UserError."""
    return paths.ensure(paths.home() / "reports")


def keep(report: Report) -> Path:
    """Save a report in the folder, whole or not at all, and delete the oldest. Raises UserError."""
    file = folder() / f"{name(report)}.html"
    write_private(file, html(report).encode())
    old = sorted(folder().glob("*.html"), key=lambda f: f.stat().st_mtime)[:-KEPT]
    for one in old:
        one.unlink(missing_ok=True)
    return file


def name(report: Report) -> str:
    """Return a file name without its ending: job-7, daily-2026-11-21, report-2026-11-21-1403."""
    if report.kind == "job":
        return f"job-{report.job}"
    pattern = "daily-%Y-%m-%d" if report.kind == "daily" else "report-%Y-%m-%d-%H%M"
    at = (report.since + report.until) / 2 if report.kind == "daily" else report.until
    return time.strftime(pattern, time.localtime(at))


def write_private(file: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all. Raises UserError."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.unlink(missing_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, paths.PRIVATE_FILE)
        with os.fdopen(fd, "wb") as f:
            f.write(data)
        new.replace(file)
    except OSError as e:
        new.unlink(missing_ok=True)
        raise UserError(
            phrase("cannot write {file}: {problem}", file=str(file), problem=e.strerror or str(e))
        ) from e
