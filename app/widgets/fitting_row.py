"""Show widgets side by side, as many of them as have room."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, row


class FittingRow(QWidget):
    """Show the first of some widgets, and those after it that are not wider than the row."""

    def __init__(self, *parts: QWidget) -> None:
        super().__init__()
        self._parts = parts
        self.setLayout(row(*parts, Stretch()))

    def minimumSizeHint(self) -> QSize:
        """Return the room of the first widget, since all others can be left out."""
        return self._parts[0].minimumSizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def event(self, event: QEvent) -> bool:
        """Look again when a widget needs more room or less."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._fit()
        return super().event(event)

    def _fit(self) -> None:
        end = -theme.S
        for at, part in enumerate(self._parts):
            end += theme.S + part.sizeHint().width()
            part.setVisible(at == 0 or end <= self.width())
