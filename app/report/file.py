"""Write a report to a file in the format of its name's ending."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudeck.app.link.call import Call
from gpudeck.app.widgets import qt_check
from gpudeck.assistant.reports.files import FORMATS, write_private
from gpudeck.assistant.reports.report import Report, unpacked
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

ENDINGS = (*FORMATS, ".pdf")
FILTER = "HTML (*.html);;PDF (*.pdf);;Markdown (*.md)"
"""The filter of file dialogs."""


class WriteReport(msgspec.Struct, frozen=True):
    """Write a report on a job to a file, in the format of its name's ending."""

    job: int
    file: str

    def carry_out(self, call: Call) -> None:
        """Have the assistant write the report, and save it."""
        from gpudeck.assistant.client import Assistant

        assistant = Assistant()
        call.on_cancel(assistant.cancel)
        report = assistant.report(self.job).report
        assert report is not None
        save_report(report, Path(self.file))


class SaveReport(msgspec.Struct, frozen=True):
    """Write a finished report to a file, in the format of its name's ending."""

    report: bytes
    """Packed (see `gpudeck.assistant.reports.report`)."""
    file: str

    def carry_out(self, call: Call) -> None:
        """Save the report."""
        save_report(unpacked(self.report), Path(self.file))


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
            phrase(
                "the name of the file must end with {names}; got {name}",
                names=", ".join(ENDINGS),
                name=repr(file.name),
            )
        )


def _pdf(report: Report) -> bytes:
    if (problem := qt_check.problem({"QT_QPA_PLATFORM": "offscreen"})) is not None:
        raise UserError(problem)
    from gpudeck.app.report.pdf import as_pdf  # imports Qt

    return as_pdf(report)
