"""The current values in a chart's header, each in the colour of its curve."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme

_FLAGS = int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)


class Values(QWidget):
    """Painted, not a label: a label whose text changes has its surroundings laid out anew, ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, str]] = []
        self.unit = ""
        self._width = 0
        self._advances: list[int] = []
        """Pixels of each value, and of the unit."""
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
        self._advances = [self.fontMetrics().horizontalAdvance(text) for text in (*(text for text, _ in values), unit)]
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
        shown, metrics = self.shown, painter.fontMetrics()
        advances = self._advances if shown is self.values else [metrics.horizontalAdvance(text) for text, _ in shown]
        for (text, color), advance in zip(shown, advances, strict=False):
            painter.setPen(QColor(color or t.text))
            painter.drawText(QRectF(x, 0, advance + 1, self.height()), _FLAGS, text)
            x += advance + theme.S
        painter.setPen(QColor(t.muted))
        painter.drawText(QRectF(x - theme.XS, 0, self.width(), self.height()), _FLAGS, self.unit)

    def _needed(self) -> int:
        """Pixels that all of it takes."""
        return sum(self._advances) + len(self.values) * theme.S + 1 if self.values else 0

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self.update()
        super().changeEvent(event)
