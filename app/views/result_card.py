"""What came of a workload's last finished job: its Result, or why there is none."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app import theme
from app.models.jobs import Row
from app.models.results import Card
from app.views.safe_text import FittedText
from app.views.widgets import label, row, set_text


class ResultCard(QWidget):
    """Verdict, rate and times on top; backend, device and checks below."""

    def __init__(self) -> None:
        super().__init__()
        self.title = label(strong=True)
        self.verdict = label(wrap=True)
        self.params = label(size="small", meaning="muted", wrap=True)
        self.tflops = label(size="huge")
        self.timing = [(label(size="small", meaning="muted"), label(strong=True)) for _ in range(4)]
        self.facts = FittedText()
        self._card: Card | None = None
        header = row(self.title, self.verdict, spacing=theme.M)
        header.setStretch(1, 1)
        self._numbers = QWidget()
        self._numbers.setLayout(self._number_row())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(header)
        layout.addWidget(self.params)
        layout.addWidget(self._numbers)
        layout.addWidget(self.facts, 1)

    def show_job(self, job: Row, result: Card | None) -> None:
        """A job that has ended, and the Result it left, if any."""
        failed = job.meaning == "failed"
        set_text(self.title, f"Job {job.id} · {job.name}")
        set_text(self.verdict, result.verdict if result else ": ".join(t for t in (job.state, job.doing) if t))
        theme.mark(self.verdict, "meaning", "failed" if failed else "")
        for part in (self._numbers, self.facts, self.params):
            part.setVisible(result is not None)
        if result is not None and result != self._card:
            self._show_result(result)
        self._card = result

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange and self._card is not None:
            self.facts.show_table(self._card.facts)
        super().changeEvent(event)

    def _show_result(self, result: Card) -> None:
        set_text(self.tflops, result.tflops)
        set_text(self.params, result.params)
        for (caption, value), (name, text) in zip(self.timing, result.timing, strict=True):
            set_text(caption, name)
            set_text(value, text)
        self.facts.show_table(result.facts)

    def _number_row(self) -> QHBoxLayout:
        numbers = row(self.tflops, label("TFLOP/s", meaning="muted"))
        numbers.setContentsMargins(0, theme.S, 0, theme.S)
        numbers.addSpacing(theme.XL)
        for caption, value in self.timing:
            box = QVBoxLayout()
            box.setSpacing(2)
            box.addStretch()
            box.addWidget(caption)
            box.addWidget(value)
            box.addStretch()
            numbers.addLayout(box)
            numbers.addSpacing(theme.L)
        numbers.addStretch()
        return numbers
