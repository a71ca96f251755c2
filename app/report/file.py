"""Write a report to a file in the format of its name's ending."""

from __future__ import annotations

from pathlib import Path

from app.shell import qtcheck
from assistant.reports.files import FORMATS, write_private
from assistant.reports.report import Report
from scheduler.protocol.errors import UserError

ENDINGS = (*FORMATS, ".pdf")
FILTER = "HTML (*.html);;PDF (*.pdf);;Markdown (*.md)"
"""The filter of file dialogs."""


def save_report(report: Report, file: Path, ending: str = "") -> None:
    """Write a report to a file. Any thread may call this.

    Args:
        report: The report to write.
        file: The file to write.
        ending: The format, such as .html; that of the file's name if omitted.

    Raises:
        UserError: The format is unknown, the file cannot be written, or Qt, which makes the PDF,
            cannot be loaded.
    """
    ending = ending or file.suffix.lower()
    check_ending(file, ending)
    data = _pdf(report) if ending == ".pdf" else FORMATS[ending](report).encode()
    write_private(file, data)


def check_ending(file: Path, ending: str) -> None:
    """Raise UserError for a format that is not supported."""
    if ending not in ENDINGS:
        raise UserError(
            f"the name of the file must end with {', '.join(ENDINGS)}; got {file.name!r}"
        )


def _pdf(report: Report) -> bytes:
    if (problem := qtcheck.problem({"QT_QPA_PLATFORM": "offscreen"})) is not None:
        raise UserError(problem)
    from app.report.pdf import as_pdf  # imports Qt

    return as_pdf(report)
