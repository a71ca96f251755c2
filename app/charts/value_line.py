"""Show the current values of a chart: in a line, or each at the right end of its lane."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QSize
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gpudeck.app.charts.chart_view import LANE_TOP, lane_font
from gpudeck.app.widgets import theme

_MOST_ADVANCES = 2000
_SHRINK_BY = 40
"""Pixels; a line that needs fewer pixels less keeps its width."""
_LANE_VALUE = 40
"""Pixels of the values right of the lanes."""


class ValueLine(QWidget):
    """Show the current values of a chart, each in the colour of its curve.

    It paints them itself: when the text of a label changes, Qt lays out everything around it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, str | None]] = []
        self.unit = ""
        self._width = 0
        self._advances: list[int] = []
        """Pixels of each value, and of the unit."""
        self._known: dict[str, int] = {}
        """Pixels of texts: measuring takes half as long as painting."""
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self.hide()

    @property
    def text(self) -> str:
        """Return everything as one line."""
        return " ".join((*(text for text, _ in self.values), self.unit))

    @property
    def shown(self) -> list[tuple[str, str | None]]:
        """Return what is painted: the lowest and highest value if there is no room for all."""
        if self._needed() <= self.width():
            return self.values
        numbers = sorted((text for text, _ in self.values if text[:1].isdigit()), key=_value)
        if len(numbers) < 2:
            return []  # a range needs two values; the tooltip has the only one
        return [(f"{numbers[0]}–{numbers[-1]}", None)]

    def show_values(self, values: list[tuple[str, str | None]], unit: str) -> None:
        """Show texts with their colours (None: the usual one) and the unit of all of them."""
        if (values, unit) == (self.values, self.unit):
            return
        self.values, self.unit = values, unit
        self.setAccessibleName(self.text)
        self.setVisible(bool(values or unit))
        self._advances = [self._advance(text) for text in (*(text for text, _ in values), unit)]
        width = self._needed()
        if not self._width - _SHRINK_BY < width <= self._width:
            self._width = width
            self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(self._width, self.fontMetrics().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t, x = QPainter(self), theme.tokens(), 0.0
        shown, metrics = self.shown, painter.fontMetrics()
        advances = self._advances
        if shown is not self.values:
            advances = [self._advance(text) for text, _ in shown]
        line = (self.height() - metrics.height() + 1) // 2 + metrics.ascent()
        for (text, color), advance in zip(shown, advances, strict=False):
            painter.setPen(QColor(color or t.text))
            painter.drawText(QPointF(x, line), text)  # in a rectangle it takes a third longer
            x += advance + theme.S
        painter.setPen(QColor(t.muted))
        painter.drawText(QPointF(max(x - theme.XS, 0.0), line), self.unit)

    def _needed(self) -> int:
        return sum(self._advances) + len(self.values) * theme.S + 1

    def _advance(self, text: str) -> int:
        found = self._known.get(text)
        if found is None:
            if len(self._known) > _MOST_ADVANCES:
                self._known.clear()
            found = self._known[text] = self.fontMetrics().horizontalAdvance(text)
        return found

    def changeEvent(self, event: QEvent) -> None:
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._known.clear()
        super().changeEvent(event)


def lane_values_width() -> int:
    """Return the pixels that the values right of the lanes take."""
    return theme.px(_LANE_VALUE)


class LaneValues(QWidget):
    """Show the current value of each lane beside its right end, from the top down."""

    def __init__(self, below: int) -> None:
        """Leave `below` pixels free under the lowest lane, where the time axis is."""
        super().__init__()
        self.texts: list[str] = []
        self._below = below
        self.setFixedWidth(lane_values_width())
        self.hide()

    def show_texts(self, texts: list[str]) -> None:
        """Show these values; none hides the column."""
        if texts != self.texts:
            self.texts = texts
            self.setAccessibleName(" ".join(texts))
            self.setVisible(bool(texts))
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, room = QPainter(self), self.height() - LANE_TOP - self._below
        lane = room / max(len(self.texts), 1)
        painter.setFont(lane_font(lane))
        painter.setPen(QColor(theme.tokens().text))
        metrics = QFontMetricsF(painter.font())
        middle = (metrics.ascent() - metrics.descent()) / 2
        for at, text in enumerate(self.texts):
            left = self.width() - metrics.horizontalAdvance(text)
            painter.drawText(QPointF(left, LANE_TOP + (at + 0.5) * lane + middle), text)


def _value(text: str) -> float:
    """Return the number of a text, which may have a decimal comma."""
    return float(text.replace(",", "."))
