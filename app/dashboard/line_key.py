"""Show the colour of a curve in front of the words that explain it."""

from __future__ import annotations

from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.widgets import theme

_WIDTH, _LINE = 16, 2


class LineKey(QWidget):
    """Paint a short line; hidden while it has no colour."""

    def __init__(self) -> None:
        super().__init__()
        self.color = ""
        self.setFixedWidth(theme.px(_WIDTH))

    def show_color(self, color: str) -> None:
        """Paint the line in this colour; hide it if that is empty."""
        self.setVisible(bool(color))
        if color != self.color:
            self.color = color
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        middle = (self.height() - _LINE) // 2
        QPainter(self).fillRect(0, middle, self.width(), _LINE, QColor(self.color))
