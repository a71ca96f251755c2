"""Paint the parts of a whole as one bar, with their names and sizes below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from gpudeck.app.format.values import memory
from gpudeck.app.widgets import theme

_BAR, _GAP, _DOT = 8, 6, 8
_LEAST = 3
"""The least pixels of a part, so that its colour can be seen."""


class BarPart(NamedTuple):
    """One part of the whole."""

    name: str
    size: float
    """Bytes."""
    color: str = ""
    """A token of the theme; empty for the next colour of a series."""


class PartsBar(QWidget):
    """Show the parts from left to right, and below them as many lines of names as are needed."""

    def __init__(self, name: str) -> None:
        """Show an empty bar; `name` is the accessible name."""
        super().__init__()
        self.parts: tuple[BarPart, ...] = ()
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setAccessibleName(name)

    def show_parts(self, parts: Sequence[BarPart]) -> None:
        """Show other parts, which fill the bar together."""
        new = tuple(parts)
        if new != self.parts:
            self.parts = new
            self.setAccessibleDescription(", ".join(self._texts()))
            self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(300), self.heightForWidth(max(self.width(), theme.px(300))))

    def heightForWidth(self, width: int) -> int:
        lines = 1 + max((line for line, _ in self._places(width)), default=0)
        text = (lines - 1) * self._metrics().height() + theme.px(theme.SMALL) + theme.S
        return theme.px(_BAR) + _GAP + text

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        bar = QRectF(0, _GAP / 2, self.width(), theme.px(_BAR))
        painter.fillRect(bar, QColor(theme.tokens().line))
        whole = sum(part.size for part in self.parts) or 1.0
        left = bar.left()
        for part, color in zip(self.parts, self._colors(), strict=True):
            width = bar.width() * part.size / whole
            painter.fillRect(QRectF(left, bar.top(), max(width - 1, _LEAST), bar.height()), color)
            left += max(width, _LEAST + 1)
        self._draw_names(painter, bar.bottom() + _GAP)

    def _draw_names(self, painter: QPainter, top: float) -> None:
        painter.setFont(theme.font(theme.SMALL))
        metrics, muted = self._metrics(), QColor(theme.tokens().muted)
        places = self._places(self.width())
        for text, part, color, (line, at) in zip(
            self._texts(), self.parts, self._colors(), places, strict=True
        ):
            upper = top + line * metrics.height()
            middle = upper + metrics.height() / 2
            # a dot in the colour of the empty bar would not be seen without a line
            painter.setPen(muted if part.color == "line" else Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawEllipse(QRectF(at + 0.5, middle - _DOT / 2 + 0.5, _DOT - 1, _DOT - 1))
            painter.setPen(muted)
            left = at + _DOT + _GAP
            box = QRectF(left, upper, self.width() - left, metrics.height())
            painter.drawText(box, int(Qt.AlignmentFlag.AlignVCenter), text)

    def _places(self, width: float) -> list[tuple[int, float]]:
        """Return the line of each name and the left edge of its dot."""
        metrics, found = self._metrics(), list[tuple[int, float]]()
        line, at = 0, 0.0
        for text in self._texts():
            wide = _DOT + _GAP + metrics.horizontalAdvance(text)
            if at and at + wide > width:
                line, at = line + 1, 0.0
            found.append((line, at))
            at += wide + theme.L
        return found

    def _metrics(self) -> QFontMetrics:
        return QFontMetrics(theme.font(theme.SMALL))

    def _texts(self) -> list[str]:
        return [f"{part.name} {memory(part.size)}" for part in self.parts]

    def _colors(self) -> list[QColor]:
        t, series = theme.tokens(), theme.owner_colors()
        return [
            QColor(getattr(t, part.color) if part.color else series[at % len(series)])
            for at, part in enumerate(self.parts)
        ]

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), "\n".join(self._texts()), self)
            return True
        return super().event(event)
