"""Offer questions to begin a conversation with."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.assistant.presets import first_questions
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, label, set_text
from gpudeck.app.widgets.fold_row import FoldRow


class FirstQuestions(QWidget):
    """Show a text above the questions, two beside each other where there is room."""

    asked = Signal(object)
    """The user pressed a question; carries a `Preset`."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label(meaning="muted", wrap=True)
        self.text.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.buttons = [
            self._button(place, question.text) for place, question in enumerate(first_questions())
        ]
        rows = [FoldRow(*pair) for pair in zip(self.buttons[::2], self.buttons[1::2], strict=True)]
        self._questions = QWidget()
        self._questions.setLayout(column(*rows, spacing=theme.S))
        self.setLayout(column(Stretch(), self.text, self._questions, Stretch(), spacing=theme.L))

    def show_text(self, text: str, *, can_ask: bool) -> None:
        """Show another text, with the questions if the assistant can answer."""
        set_text(self.text, text)
        self._questions.setVisible(can_ask)

    def _button(self, place: int, text: str) -> QWidget:
        # made anew when it is pressed, since its time ends then
        return button(text, lambda: self.asked.emit(first_questions()[place]))
