"""Show which share of a whole is done as a thin bar."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.widgets import theme

_HIGH = 4
"""Pixels of the height of a bar."""


class ShareBar(QWidget):
    """Paint a share from 0 to 1; hidden while it is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.share: float | None = None
        self.setFixedHeight(theme.px(_HIGH))
        self.hide()

    def show_share(self, share: float | None) -> None:
        """Show another share; None hides the bar."""
        self.share = share
        self.setVisible(share is not None)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.share is None:
            return
        painter, tokens = QPainter(self), theme.tokens()
        whole = QRectF(self.rect())
        painter.fillRect(whole, QColor(tokens.grid))
        whole.setWidth(whole.width() * min(self.share, 1.0))
        painter.fillRect(whole, QColor(tokens.accent))
