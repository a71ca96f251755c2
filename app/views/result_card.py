"""The Result of one job."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app import theme
from app.models.jobs import Row
from app.models.results import Card
from app.views.safe_text import SafeText
from app.views.widgets import Bar, elided, label, row, set_text


class ResultCard(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.title = label(strong=True)
        self.state = label()
        self.doing = label(meaning="muted", wrap=True)
        self.bar = Bar()
        self.tflops = label(size="huge")
        self.unit = label("TFLOP/s", meaning="muted")
        self.timing = [(label(size="small", meaning="muted"), label(strong=True)) for _ in range(4)]
        self.params = elided(size="small", meaning="muted")
        self.facts = SafeText()
        header = row(self.title, self.state, spacing=theme.M)
        header.addStretch()
        self._numbers = QWidget()
        self._numbers.setLayout(self._number_row())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(header)
        for widget in (self.params, self.doing, self.bar, self._numbers, self.facts):
            layout.addWidget(widget)
        layout.addStretch()
        layout.setStretchFactor(self.facts, 1)
        self._card: Card | None = None
        self.show_nothing("")

    def show_nothing(self, text: str) -> None:
        """There was no run yet; `text` says what to do."""
        set_text(self.title, "")
        set_text(self.state, "")
        set_text(self.doing, text)
        self._show_result(None)
        self.bar.hide()
        self.params.hide()

    def show_run(self, job: Row, result: Card | None) -> None:
        set_text(self.title, f"Job {job.id} · {job.name}")
        set_text(self.state, job.state if result is None else result.verdict if result.passed else f"{job.state}: {result.verdict}")
        failed = job.meaning == "failed" or (result is not None and not result.passed)
        theme.mark(self.state, "meaning", "failed" if failed else job.meaning)
        set_text(self.doing, "" if result else job.doing)
        self.doing.setVisible(result is None)
        self.bar.setVisible(job.active)
        self.bar.set_share(job.share)
        self._show_result(result)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange and self._card is not None:
            self.facts.show_table(self._card.facts)
        super().changeEvent(event)

    def _show_result(self, result: Card | None) -> None:
        for part in (self._numbers, self.facts, self.params):
            part.setVisible(result is not None)
        if result is None or result == self._card:
            self._card = result
            return
        self._card = result
        set_text(self.tflops, result.tflops)
        set_text(self.params, result.params)
        for (caption, value), (name, text) in zip(self.timing, result.timing, strict=True):
            set_text(caption, name)
            set_text(value, text)
        self.facts.show_table(result.facts)

    def _number_row(self) -> QHBoxLayout:
        numbers = row(self.tflops, self.unit, spacing=theme.S)
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
