"""A report as PDF, by Qt; and which format a file's name asks for."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QBuffer, QSizeF
from PySide6.QtGui import QPdfWriter

from gpudeck.app.report import pdf
from gpudeck.app.report.file import save_report
from gpudeck.app.report.pdf import as_pdf
from gpudeck.assistant.reports.report import Chart, Curve, Excerpt, Prose, Report, Section, Table
from gpudeck.scheduler.protocol.errors import UserError

TIMES = tuple(float(i) for i in range(100))
WAVE = tuple(float(i % 50) for i in range(100))
CHART = Chart(
    "Power",
    "W",
    0.0,
    99.0,
    tuple(Curve(f"GPU {i}", TIMES, WAVE, WAVE, WAVE) for i in range(2)),
    "readings",
    note="GPU 0: mean 25 W",
)
EMPTY = Chart("Temperature", "°C", 0.0, 99.0, (), "readings", note="no data (no sensor)")


def report(charts: int = 1) -> Report:
    sections = (
        Section("", (Prose("## What happened\n\nA job ran at 611 TFLOP/s."),)),
        Section(
            "Figures",
            (
                Table("Outcome", ("", ""), (("State", "done"),)),
                *(CHART for _ in range(charts)),
                EMPTY,
            ),
        ),
        Section("Log", (Excerpt("", "<img src=/etc/passwd> \ufffc line", "log of job 7"),)),
    )
    return Report("job", "Report on job 7: <b>x</b>", 0.0, 99.0, 100.0, "template", sections, (), 7)


def pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b", pdf))


@pytest.mark.usefixtures("qapp")
def test_a_pdf_has_as_many_pages_as_its_charts_need(tmp_path: Path) -> None:
    few, many = as_pdf(report()), as_pdf(report(charts=12))
    assert few.startswith(b"%PDF-") and b"%%EOF" in few[-16:]
    assert pages(few) == 1 and 3 <= pages(many) <= 6
    assert len(many) > len(few), "charts are drawn"
    assert b"/URI" not in few and b"/JavaScript" not in few
    save_report(report(), tmp_path / "x.PDF")
    assert (tmp_path / "x.PDF").read_bytes().startswith(b"%PDF-")


def test_the_file_suffix_selects_the_format(tmp_path: Path) -> None:
    save_report(report(), tmp_path / "x.html")
    save_report(report(), tmp_path / "x.md")
    save_report(report(), tmp_path / "x.txt", ".md")
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "x.md").read_text() == (tmp_path / "x.txt").read_text()
    with pytest.raises(UserError, match=r"must end with \.md, \.html, \.pdf"):
        save_report(report(), tmp_path / "x.docx")
    with pytest.raises(UserError, match="cannot write"):
        save_report(report(), tmp_path / "missing" / "x.md")


def test_no_heading_stands_alone_at_the_end_of_a_page(qapp) -> None:
    """A section's title is followed by that of its table, wherever the page ends."""
    page, writer = QSizeF(680, 900), QPdfWriter(QBuffer())
    alone = 0
    for lines in range(30, 60):
        table = Table("Outcome", ("What", "How"), (("State", "done"),) * 3)
        text = "\n\n".join(["One line."] * lines)
        made = msgspec.structs.replace(
            report(), sections=(Section("", (Prose(text),)), Section("Figures", (table,)))
        )
        document, _charts = pdf._document(made, writer, page)
        block = document.begin()
        while (after := block.next()).isValid():
            if block.blockFormat().headingLevel():
                alone += pdf._page(document, block, page) != pdf._page(document, after, page)
            block = after
    assert alone == 0
