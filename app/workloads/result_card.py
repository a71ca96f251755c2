"""Show the progress of a workload's job, its last result, and earlier results as bars."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from PySide6.QtCore import QEvent, QSize, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from gpudeck.accel.result import Result
from gpudeck.app.charts.curve_strip import CurveStrip
from gpudeck.app.format.job_rows import JobRow
from gpudeck.app.format.results import ResultSummary
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    ProgressLine,
    Stretch,
    ask_save_path,
    button,
    column,
    label,
    pill,
    row,
    set_pill,
    set_text,
    show_if_any,
)
from gpudeck.app.widgets.safe_text import FittedText
from gpudeck.app.workloads.cell_charts import DETAILS, CellCharts

_FIGURE, _TIME, _LEAST = 190, 78, 200
"""Pixels of width of the headline, of a time beside it, and of the card at least."""
_MOST_CURVES = 4
"""The curves that have room side by side."""
FORMATS = "CSV (*.csv);;JSON (*.json)"


class ActiveJobCard(QWidget):
    """Show a job that waits or runs, with its progress."""

    def __init__(self) -> None:
        super().__init__()
        self.title, self.state = label(strong=True), pill()
        self.doing = label(meaning="muted", wrap=True)
        self.progress = ProgressLine()
        header = row(self.title, self.state, Stretch(), spacing=theme.M)
        self.setLayout(column(header, self.doing, self.progress))

    def show_job(self, job: JobRow) -> None:
        """Show another job, or its new state."""
        set_text(self.title, tr("Job {job} · {name}", job=job.id, name=job.name))
        set_pill(self.state, tr(job.state), job.meaning or "accent")
        set_text(self.doing, job.doing)
        self.progress.set_share(job.share)


class ResultCard(QWidget):
    """Show verdict, rate and times, and below them the cells or the details.

    Emits `saved` with a job's id and the name of the file to save the result to, and `tried` with
    the id of a job whose model the user wants to try.
    """

    saved = Signal(int, str)
    tried = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.title = label(strong=True)
        self.verdict = pill()
        self.params = label(size="small", meaning="muted", wrap=True)
        self.figure, self.unit = label(size="huge"), label(meaning="muted", wrap=True)
        self.timing = [(label(size="small", meaning="muted"), label(strong=True)) for _ in range(4)]
        self.cells = CellCharts()
        self.cells.viewed.connect(self._show_view)
        self.curves = CurveStrip()
        self.facts = FittedText()
        self.facts.setAccessibleName(tr("About the result"))
        self.save = button(
            tr("Save…"), self._save, tooltip=tr("Save the result as CSV or JSON (Ctrl+S)")
        )
        self.save.setShortcut("Ctrl+S")
        self.try_it = button(
            tr("Try it"), self._try, tooltip=tr("Serve this model, and show it under Models")
        )
        self.try_it.hide()
        self.note = label(size="small", meaning="muted", wrap=True)
        self.note.hide()
        self._summary: ResultSummary | None = None
        self._has_cells = False
        self._numbers = QWidget()
        self._numbers.setLayout(self._number_row())
        self._numbers.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._header = row(
            self.title, self.verdict, Stretch(), self.try_it, self.save, spacing=theme.M
        )
        self.setLayout(
            column(
                self._header,
                self.params,
                self.note,
                self._numbers,
                self.curves,
                Stretch(self.cells),
                Stretch(self.facts),
            )
        )

    def show_job(self, job: JobRow, summary: ResultSummary | None) -> None:
        """Show a job that has ended, and the result that it left, if any."""
        set_text(self.title, tr("Job {job} · {name}", job=job.id, name=job.name))
        outcome = tr(job.state)
        if job.doing:
            outcome = tr("{caption}: {value}", caption=outcome, value=job.doing)
        passed = summary is not None and summary.passed
        set_pill(
            self.verdict, summary.verdict if summary else outcome, "succeeded" if passed else ""
        )
        self._style_verdict(passed, job.meaning)
        for part in (self._numbers, self.params, self.save):
            part.setVisible(summary is not None)
        if summary is None or self._summary is None or summary.job != self._summary.job:
            self.show_note("")
        if summary is not None and summary != self._summary:
            self._show_summary(summary)
        self._summary = summary
        self._show_view()

    def _style_verdict(self, passed: bool, meaning: str) -> None:
        """Show a verdict of one word as a pill, and what went wrong as a text that wraps."""
        policy = QSizePolicy.Policy
        self.verdict.setWordWrap(not passed)
        self.verdict.setSizePolicy(
            policy.Maximum if passed else policy.Expanding,
            policy.Fixed if passed else policy.Preferred,
        )
        for at, takes_room in ((1, not passed), (2, passed)):  # the verdict, or the gap behind it
            self._header.setStretch(at, int(takes_room))
        theme.mark(self.verdict, "meaning", "failed" if meaning == "failed" else "")

    def show_cells(self, result: Result | None, others: Iterable[Result]) -> None:
        """Show the cells of the job's Result; None if it has none, or they are not loaded yet."""
        self._has_cells = result is not None
        if result is not None:
            self.cells.show_result(result, others)
        self._show_view()

    def show_curves(self, result: Result | None) -> None:
        """Show the curves of the job's Result, if it has any."""
        curves = () if result is None else result.curves
        self.curves.show_curves(
            {
                tr_text(c.name): (np.arange(1.0, len(c.values) + 1), np.asarray(c.values))
                for c in curves[:_MOST_CURVES]
                if len(c.values) > 1
            }
        )

    def show_note(self, text: str) -> None:
        """Show a message below the parameters."""
        show_if_any(self.note, text)

    @property
    def charted(self) -> bool:
        """Report if a chart is shown, which takes all the room."""
        return self._has_cells and (self.cells.spread or self.cells.view != DETAILS)

    def show_all(self, *, wanted: bool) -> None:
        """Show all charts and the details at once, or what the user chose."""
        self.cells.show_all(wanted=wanted)
        self._show_view()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out the times that have no room; they are among the details, too."""
        super().resizeEvent(event)
        fitting = (self.width() - theme.px(_FIGURE)) // theme.px(_TIME)
        for at, parts in enumerate(self.timing):
            for part in parts:
                part.setVisible(at < fitting)

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(_LEAST), super().minimumSizeHint().height())

    def _show_view(self) -> None:
        self.cells.setVisible(self._has_cells)
        fills = self.charted and not self.cells.alone
        vertical = QSizePolicy.Policy.Expanding if fills else QSizePolicy.Policy.Maximum
        self.cells.setSizePolicy(QSizePolicy.Policy.Preferred, vertical)
        self.facts.setVisible(self._summary is not None and (self.cells.spread or not self.charted))

    def _try(self) -> None:
        if self._summary is not None:
            self.tried.emit(self._summary.job)

    def _save(self) -> None:
        if self._summary is None:
            return
        job, name = self._summary.job, f"{self._summary.workload}-{self._summary.job}.csv"
        ask_save_path(
            self, tr("Save the result"), name, FORMATS, lambda file: self.saved.emit(job, file)
        )

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange and self._summary is not None:
            self.facts.show_table(self._summary.facts)
        super().changeEvent(event)

    def _show_summary(self, summary: ResultSummary) -> None:
        for part, text in zip((self.figure, self.unit), summary.headline, strict=True):
            set_text(part, text)
        set_text(self.params, summary.params)
        for (caption, value), (name, text) in zip(self.timing, summary.timing, strict=True):
            set_text(caption, name)
            set_text(value, text)
        self.facts.show_table(summary.facts)

    def _number_row(self) -> QHBoxLayout:
        numbers = row(self.figure, self.unit, margins=(0, theme.S, 0, theme.S))
        numbers.addSpacing(theme.M)
        for caption, value in self.timing:
            numbers.addLayout(column(Stretch(), caption, value, Stretch(), spacing=2))
            numbers.addSpacing(theme.M)
        numbers.addStretch()
        return numbers
