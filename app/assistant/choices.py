"""What the assistant asks back: the things that a request may mean, each a button."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QPushButton, QVBoxLayout, QWidget

from app.widgets import theme
from app.widgets.controls import button, label
from assistant.intents.choices import MAX_CHOICES, Choice

NONE = "none"


class Choices(QFrame):
    """Emits `chosen` with the number of a choice, from "1", or with "none". Plain text only: names in it are foreign."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.title = label("I am not sure what you mean. Did you mean:", strong=True, wrap=True)
        self.buttons = {
            name: self._button(name) for name in (*map(str, range(1, MAX_CHOICES + 1)), NONE)
        }
        self.buttons[NONE].setText("None of these")
        self.buttons[NONE].setToolTip("Say it in other words")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.M, theme.M, theme.M, theme.M)
        layout.setSpacing(theme.S)
        layout.addWidget(self.title)
        for made in self.buttons.values():
            layout.addWidget(made)
        self.hide()

    def show_choices(self, choices: Sequence[Choice]) -> None:
        """None of them: it is hidden."""
        self.setVisible(bool(choices))
        said = {str(number): choice.words for number, choice in enumerate(choices, 1)}
        self.setAccessibleName("Did you mean: " + "; ".join(said.values()))
        for name, made in self.buttons.items():
            made.setVisible(name in said or name == NONE)
            if name in said:
                made.setText(f"{name}  {said[name]}".replace("&", "&&"))
                made.setAccessibleName(f"Choose {name}: {said[name]}")
                made.setToolTip(f"You can type {name}, too")

    def settle(self) -> None:
        """Lay itself out at once: its height is asked for before Qt gets to it."""
        layout = self.layout()
        assert layout is not None
        layout.activate()

    def _button(self, name: str) -> QPushButton:
        made = button("", kind="quiet" if name == NONE else "")
        made.clicked.connect(lambda: self.chosen.emit(name))
        return made
