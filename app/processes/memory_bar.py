"""Show as one bar who occupies the memory of the devices that is in use."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.format.values import memory
from app.processes.grouping import Part
from app.widgets import theme

MOST = 5
"""The most parts that are named; the others are one part."""
_BAR, _GAP, _DOT = 8, 6, 8
_UNLISTED, _LEAST_HIDDEN = "not listed", 200
"""The name of what no listed process uses, and the least of it: one part of so many."""
_LEAST = 3
"""The least pixels of a part, so that its colour can be seen."""


class MemoryBar(QWidget):
    """Paint a bar with a part for each user or group, and the names of the parts below it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: tuple[Part, ...] = ()
        self.hidden = 0.0
        """Bytes in use that belong to no listed process."""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        self.setAccessibleName("Memory by owner")

    def show_parts(self, parts: Sequence[Part], used: float, total: float) -> None:
        """Show these parts of a memory of `total` bytes, of which `used` are in use."""
        rest = used - sum(part.size for part in parts)
        hidden = rest if rest >= total / _LEAST_HIDDEN else 0.0
        if (tuple(parts), hidden) != (self.parts, self.hidden):
            self.parts, self.hidden = tuple(parts), hidden
            self.setAccessibleDescription(", ".join(self._texts()))
            self.update()

    def sizeHint(self) -> QSize:
        text = theme.px(theme.SMALL) + theme.S
        return QSize(theme.px(300), theme.px(_BAR) + _GAP + text)

    def _all_parts(self) -> list[Part]:
        """Return the parts, and what is used but belongs to no listed process."""
        return [*self.parts, *((Part(_UNLISTED, self.hidden),) if self.hidden else ())]

    def _texts(self) -> list[str]:
        return [f"{part.name} {memory(part.size)}" for part in self._all_parts()]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        bar = QRectF(0, _GAP / 2, self.width(), theme.px(_BAR))
        painter.fillRect(bar, QColor(t.line))
        whole = sum(part.size for part in self._all_parts()) or 1.0
        left, colors = bar.left(), self._colors()
        for part, color in zip(self._all_parts(), colors, strict=False):
            width = bar.width() * part.size / whole
            painter.fillRect(QRectF(left, bar.top(), max(width - 1, _LEAST), bar.height()), color)
            left += max(width, _LEAST + 1)
        self._draw_names(painter, bar.bottom() + _GAP, colors)

    def _draw_names(self, painter: QPainter, top: float, colors: Sequence[QColor]) -> None:
        font = theme.font(theme.SMALL)
        painter.setFont(font)
        metrics, at = painter.fontMetrics(), 0.0
        middle = top + metrics.height() / 2
        for text, color in zip(self._texts(), colors, strict=False):
            wide = metrics.horizontalAdvance(text)
            if at + _DOT + 6 + wide > self.width():
                return  # what has no room is in the tooltip
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawEllipse(QRectF(at + 0.5, middle - _DOT / 2 + 0.5, _DOT - 1, _DOT - 1))
            painter.setPen(QColor(theme.tokens().muted))
            box = QRectF(at + _DOT + 6, top, wide + 1, metrics.height())
            painter.drawText(box, int(Qt.AlignmentFlag.AlignVCenter), text)
            at += _DOT + 6 + wide + theme.L

    def _colors(self) -> list[QColor]:
        t = theme.tokens()
        named = [QColor(color) for color in t.series]
        return [
            QColor(t.muted) if part.name in ("others", _UNLISTED) else named[at % len(named)]
            for at, part in enumerate(self._all_parts())
        ]

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), "\n".join(self._texts()), self)
            return True
        return super().event(event)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self.update()
        super().changeEvent(event)
