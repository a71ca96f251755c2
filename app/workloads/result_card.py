"""What came of a workload's last finished job: its Result, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QEvent, Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from accel.result import Result
from app.format.job_rows import Row
from app.widgets import theme
from app.widgets.controls import ask_save_path, button, label, row, set_text
from app.widgets.safe_text import FittedText
from app.workloads.cell_charts import DETAILS, CellCharts
from app.workloads.results import Card

FORMATS = "CSV (*.csv);;JSON (*.json)"


class ResultCard(QWidget):
    """Verdict, rate and times on top; the cells, or backend, device and checks, below. Emits `saved` with a job's id and a file's name."""

    saved = Signal(int, str)

    def __init__(self) -> None:
        super().__init__()
        self.title = label(strong=True)
        self.verdict = label(wrap=True)
        self.params = label(size="small", meaning="muted", wrap=True)
        self.figure, self.unit = label(size="huge"), label(meaning="muted", wrap=True)
        self.timing = [(label(size="small", meaning="muted"), label(strong=True)) for _ in range(4)]
        self.cells = CellCharts()
        self.cells.viewed.connect(self._show_view)
        self.facts = FittedText()
        self.facts.setAccessibleName("About the result")
        self.save = button("Save", tooltip="Write the result to a file, as CSV or JSON (Ctrl+S)")
        self.save.setShortcut("Ctrl+S")
        self.save.clicked.connect(self._save)
        self.note = label(size="small", meaning="muted", wrap=True)
        self.note.hide()
        self._card: Card | None = None
        self._gridded = False
        header = row(self.title, self.verdict, self.save, spacing=theme.M)
        header.setStretch(1, 1)
        self._numbers = QWidget()
        self._numbers.setLayout(self._number_row())
        self._numbers.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(header)
        layout.addWidget(self.params)
        layout.addWidget(self.note)
        layout.addWidget(self._numbers)
        layout.addWidget(self.cells, 1)
        layout.addWidget(self.facts, 1)

    def show_job(self, job: Row, result: Card | None) -> None:
        """A job that has ended, and the Result it left, if any."""
        failed = job.meaning == "failed"
        set_text(self.title, f"Job {job.id} · {job.name}")
        set_text(
            self.verdict,
            result.verdict if result else ": ".join(t for t in (job.state, job.doing) if t),
        )
        theme.mark(self.verdict, "meaning", "failed" if failed else "")
        for part in (self._numbers, self.params, self.save):
            part.setVisible(result is not None)
        if result is None or self._card is None or result.job != self._card.job:
            self.say("")
        if result is not None and result != self._card:
            self._show_result(result)
        self._card = result
        self._show_view()

    def show_cells(self, result: Result | None, others: Iterable[Result]) -> None:
        """What of the shown job's Result is a grid; None: it has no cells, or they are not here yet."""
        self._gridded = result is not None
        if result is not None:
            self.cells.show_result(result, others)
        self._show_view()

    def say(self, text: str) -> None:
        """A line below the parameters."""
        set_text(self.note, text)
        self.note.setVisible(bool(text))

    @property
    def charted(self) -> bool:
        """Whether a chart is shown, which takes all the room there is."""
        return self._gridded and self.cells.view != DETAILS

    def _show_view(self) -> None:
        self.cells.setVisible(self._gridded)
        vertical = QSizePolicy.Policy.Expanding if self.charted else QSizePolicy.Policy.Maximum
        self.cells.setSizePolicy(QSizePolicy.Policy.Preferred, vertical)
        self.facts.setVisible(self._card is not None and not self.charted)

    def _save(self) -> None:
        if self._card is None:
            return
        job = self._card.job
        ask_save_path(
            self,
            "Save the result",
            f"{self._card.workload}-{job}.csv",
            FORMATS,
            lambda file: self.saved.emit(job, file),
        )

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange and self._card is not None:
            self.facts.show_table(self._card.facts)
        super().changeEvent(event)

    def _show_result(self, result: Card) -> None:
        for part, text in zip((self.figure, self.unit), result.headline, strict=True):
            set_text(part, text)
        set_text(self.params, result.params)
        for (caption, value), (name, text) in zip(self.timing, result.timing, strict=True):
            set_text(caption, name)
            set_text(value, text)
        self.facts.show_table(result.facts)

    def _number_row(self) -> QHBoxLayout:
        numbers = row(self.figure, self.unit)
        numbers.setContentsMargins(0, theme.S, 0, theme.S)
        numbers.addSpacing(theme.M)
        for caption, value in self.timing:
            box = QVBoxLayout()
            box.setSpacing(2)
            box.addStretch()
            box.addWidget(caption)
            box.addWidget(value)
            box.addStretch()
            numbers.addLayout(box)
            numbers.addSpacing(theme.M)
        numbers.addStretch()
        return numbers
