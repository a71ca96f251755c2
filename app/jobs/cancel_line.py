"""The question before many jobs are cancelled at once."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.format.values import plural
from app.widgets import theme
from app.widgets.controls import button, card, label, row, set_text


class CancelLine(QWidget):
    """One question about all of them. Emits `answered` with the numbers; none where they are kept."""

    answered = Signal(tuple)

    def __init__(self) -> None:
        super().__init__()
        self._jobs: tuple[int, ...] = ()
        self.question = label(meaning="hot", wrap=True)
        self.yes, self.no = (
            button("Cancel them", kind="primary"),
            button("Keep them", tooltip="(Esc)"),
        )
        self.yes.clicked.connect(lambda: self._answer(self._jobs))
        self.no.clicked.connect(lambda: self._answer(()))
        line = row(self.question, self.yes, self.no, spacing=theme.M)
        line.setStretch(0, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(card(line))
        QShortcut(QKeySequence("Esc"), self, self.no.click).setContext(
            Qt.ShortcutContext.WidgetWithChildrenShortcut
        )
        self.hide()

    def ask(self, waiting: Sequence[int], running: Sequence[int]) -> None:
        """About jobs that wait, and jobs that run."""
        self._jobs = (*waiting, *running)
        set_text(self.question, cancel_question(len(waiting), len(running)))
        self.show()
        self.no.setFocus()

    def _answer(self, jobs: tuple[int, ...]) -> None:
        self.hide()
        self.answered.emit(jobs)


def cancel_question(waiting: int, running: int) -> str:
    """Return the question that is asked before jobs are cancelled.

    Args:
        waiting: The number of jobs that wait.
        running: The number of jobs that run.
    """
    consequences = []
    if waiting:
        consequences.append(f"{waiting} {'waits' if waiting == 1 else 'wait'} and will never run")
    if running:
        consequences.append(f"{running} {'runs' if running == 1 else 'run'} and will be ended")
    return f"Cancel {plural(waiting + running, 'job')}? {', '.join(consequences)}."
