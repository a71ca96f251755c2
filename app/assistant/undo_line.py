"""A line that says what was deleted, and brings it back."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QWidget

from app.widgets.controls import button, elided, row, set_tooltip


class UndoLine(QWidget):
    """Hidden until something was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self._undo: Callable[[], None] | None = None
        self.said = elided(size="small", meaning="muted")
        self.undo = button("Undo", kind="quiet", tooltip="Bring back what was deleted")
        self.undo.clicked.connect(self._bring_back)
        layout = row(self.said, self.undo)
        layout.setStretch(0, 1)
        self.setLayout(layout)
        self.hide()

    def offer(self, said: str, undo: Callable[[], None]) -> None:
        """Only the last deletion can be undone here."""
        self._undo = undo
        self.said.setText(said)
        set_tooltip(self.said, said)
        self.show()
        self.undo.setFocus()

    def clear(self) -> None:
        self._undo = None
        self.hide()

    def _bring_back(self) -> None:
        undo, self._undo = self._undo, None
        self.hide()
        if undo is not None:
            undo()
