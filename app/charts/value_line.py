"""The current values in a chart's header, each in the colour of its curve."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QSize
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.widgets import theme

_MOST_KNOWN = 2000


class Values(QWidget):
    """Painted, not a label: a label whose text changes has its surroundings laid out anew, ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, str]] = []
        self.unit = ""
        self._width = 0
        self._advances: list[int] = []
        """Pixels of each value, and of the unit."""
        self._known: dict[str, int] = {}
        """Pixels of texts that were shown: measuring takes half as long as painting."""
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
        self._advances = [self._advance(text) for text in (*(text for text, _ in values), unit)]
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
        advances = (
            self._advances if shown is self.values else [self._advance(text) for text, _ in shown]
        )
        line = (self.height() - metrics.height() + 1) // 2 + metrics.ascent()
        for (text, color), advance in zip(shown, advances, strict=False):
            painter.setPen(QColor(color or t.text))
            painter.drawText(QPointF(x, line), text)  # in a rectangle it takes a third longer
            x += advance + theme.S
        painter.setPen(QColor(t.muted))
        painter.drawText(QPointF(x - theme.XS, line), self.unit)

    def _needed(self) -> int:
        """Pixels that all of it takes."""
        return sum(self._advances) + len(self.values) * theme.S + 1 if self.values else 0

    def _advance(self, text: str) -> int:
        if (found := self._known.get(text)) is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            found = self._known[text] = self.fontMetrics().horizontalAdvance(text)
        return found

    def changeEvent(self, event: QEvent) -> None:
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._known.clear()
        if event.type() == QEvent.Type.PaletteChange:
            self.update()
        super().changeEvent(event)
