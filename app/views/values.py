"""The current values in a chart's header, each in the colour of its curve."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme


class Values(QWidget):
    """Painted, not a label: a label whose text changes has its surroundings laid out anew, ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, str]] = []
        self.unit = ""
        self._width = 0
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self.hide()

    @property
    def text(self) -> str:
        """All of it as one line."""
        return " ".join((*(text for text, _ in self.values), self.unit))

    @property
    def shown(self) -> list[tuple[str, str]]:
        """What is painted: where not all of them have room, from the lowest to the highest."""
        if self._needed() <= self.width():
            return self.values
        numbers = sorted((text for text, _ in self.values if text[:1].isdigit()), key=float)
        return [(f"{numbers[0]}–{numbers[-1]}", "")] if numbers else []

    def show_values(self, values: list[tuple[str, str]], unit: str) -> None:
        """Text and colour (empty: the text's own) of each value, and the unit of all of them."""
        if (values, unit) == (self.values, self.unit):
            return
        self.values, self.unit = values, unit
        self.setAccessibleName(self.text)
        self.setVisible(bool(values))
        width = self._needed()
        if not self._width - 40 < width <= self._width:  # grows at once, shrinks late
            self._width = width
            self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(self._width, self.fontMetrics().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.values:
            return
        painter, t, x = QPainter(self), theme.tokens(), 0.0
        metrics = painter.fontMetrics()
        for text, color in self.shown:
            painter.setPen(QColor(color or t.text))
            advance = metrics.horizontalAdvance(text)
            painter.drawText(QRectF(x, 0, advance + 1, self.height()), int(Qt.AlignmentFlag.AlignVCenter), text)
            x += advance + theme.S
        painter.setPen(QColor(t.muted))
        painter.drawText(QRectF(x - theme.XS, 0, self.width(), self.height()), int(Qt.AlignmentFlag.AlignVCenter), self.unit)

    def _needed(self) -> int:
        """Pixels that all of it takes."""
        metrics = self.fontMetrics()
        widths = [metrics.horizontalAdvance(text) + theme.S for text, _ in self.values]
        return sum(widths) + metrics.horizontalAdvance(self.unit) + 1 if widths else 0

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self.update()
        super().changeEvent(event)
