"""Show an action as an icon; its name is the tooltip and the accessible name."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton

from gpudeck.app.widgets import icons, theme

_SIDE, _ICON = 24, 15
"""Pixels of the button and of the icon in it."""


class IconButton(QPushButton):
    """A quiet button with one of `icons.NAMES` instead of a text."""

    def __init__(self, icon: str, name: str, tooltip: str = "") -> None:
        super().__init__()
        self._icon = icon
        self.setProperty("kind", "quiet")
        self.setAutoDefault(False)
        self.setAccessibleName(name)
        self.setToolTip(tooltip or name)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(_SIDE), theme.px(_SIDE - 2))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        t, side = theme.tokens(), theme.px(_ICON)
        painter, middle = QPainter(self), QRectF(self.rect()).center()
        box = QRectF(middle.x() - side / 2, middle.y() - side / 2, side, side)
        strong = self.isEnabled() and (self.underMouse() or self.hasFocus())
        icons.draw(painter, self._icon, box, t.text if strong else t.muted)
