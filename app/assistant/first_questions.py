"""Offer questions to begin a conversation with."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, label, set_text
from gpudeck.app.widgets.fold_row import FoldRow

QUESTIONS = (
    tr_noop("What happened in the last hour?"),
    tr_noop("Which GPU is free?"),
    tr_noop("Which job used the most energy?"),
    tr_noop("Why did the last job fail?"),
)
"""An even number of questions, of which two stand beside each other where there is room."""


class FirstQuestions(QWidget):
    """Show a text above the questions. Emit `asked` with the one that was pressed."""

    asked = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.text = label(meaning="muted", wrap=True)
        self.text.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.buttons = [self._button(tr(question)) for question in QUESTIONS]
        rows = [FoldRow(*pair) for pair in zip(self.buttons[::2], self.buttons[1::2], strict=True)]
        self._questions = QWidget()
        self._questions.setLayout(column(*rows, spacing=theme.S))
        self.setLayout(column(Stretch(), self.text, self._questions, Stretch(), spacing=theme.L))

    def show_text(self, text: str, *, can_ask: bool) -> None:
        """Show another text, with the questions if the assistant can answer."""
        set_text(self.text, text)
        self._questions.setVisible(can_ask)

    def _button(self, question: str) -> QWidget:
        return button(question, lambda: self.asked.emit(question))
