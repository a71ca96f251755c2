"""A report as a file: Markdown, HTML, or PDF, as its name's ending says."""

from __future__ import annotations

from pathlib import Path

from app.shell import qtcheck
from assistant.reports.files import FORMATS, write_private
from assistant.reports.report import Report
from scheduler.protocol.errors import UserError

ENDINGS = (*FORMATS, ".pdf")
FILTER = "HTML (*.html);;PDF (*.pdf);;Markdown (*.md)"
"""For file dialogs."""


def save_report(report: Report, file: Path, ending: str = "") -> None:
    """Write it in the format that the file's name ends with, or `ending` names. Any thread may call.

    Raises UserError, saying what to do: for another ending, where the file cannot be written, and where Qt cannot be loaded for a PDF.
    """
    ending = ending or file.suffix.lower()
    check_ending(file, ending)
    data = _pdf(report) if ending == ".pdf" else FORMATS[ending](report).encode()
    write_private(file, data)


def check_ending(file: Path, ending: str) -> None:
    """Raises UserError for a format that there is none of."""
    if ending not in ENDINGS:
        raise UserError(
            f"the file's name must end with {', '.join(ENDINGS)}, which says the format; got {file.name!r}"
        )


def _pdf(report: Report) -> bytes:
    if (problem := qtcheck.problem({"QT_QPA_PLATFORM": "offscreen"})) is not None:
        raise UserError(problem)
    from app.report.pdf import as_pdf  # brings Qt in: only where it is needed

    return as_pdf(report)
