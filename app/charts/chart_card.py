"""Show a chart in a card, with its title and current values above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.charts.chart_model import ChartModel
from app.charts.chart_source import ChartContents, Curve
from app.charts.chart_view import ChartView
from app.charts.lanes import FROM as LANES_FROM
from app.charts.lanes import floors, in_lanes
from app.charts.scales import AxisTop
from app.format.values import lane_label
from app.widgets import theme
from app.widgets.controls import (
    Stretch,
    card,
    column,
    elided,
    label,
    row,
    set_text,
    set_tooltip,
    show_if_any,
)

_LOWEST = 72
"""The least height of a plot at the usual size of text."""
_MOST_ADVANCES = 2000
_SHRINK_BY = 40
"""Pixels; a line that needs fewer pixels less keeps its width."""


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
        numbers = sorted((text for text, _ in self.values if text[:1].isdigit()), key=float)
        if len(numbers) < 2:
            return []  # a range needs two values; the tooltip has the only one
        return [(f"{numbers[0]}–{numbers[-1]}", None)]

    def show_values(self, values: list[tuple[str, str | None]], unit: str) -> None:
        """Show texts with their colours (None: the usual one) and the unit of all of them."""
        if (values, unit) == (self.values, self.unit):
            return
        self.values, self.unit = values, unit
        self.setAccessibleName(self.text)
        self.setVisible(bool(values))
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
        if not self.values:
            return
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
        painter.drawText(QPointF(x - theme.XS, line), self.unit)

    def _needed(self) -> int:
        return sum(self._advances) + len(self.values) * theme.S + 1 if self.values else 0

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
        if event.type() == QEvent.Type.PaletteChange:
            self.update()
        super().changeEvent(event)


class SpanSummary(QWidget):
    """Show the lowest, mean and highest value of the visible span, on the right of a header."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setToolTip("The lowest, mean and highest value of the time that is shown")

    def show_text(self, text: str) -> None:
        """Paint another text."""
        if text != self.text:
            self.text = text
            self.setAccessibleName(text)
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(theme.font(theme.SMALL))
        if painter.fontMetrics().horizontalAdvance(self.text) <= self.width():
            painter.setPen(QColor(theme.tokens().muted))
            side = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(self.rect(), int(side), self.text)


class ChartCard:
    """Show a chart below its title and current values."""

    def __init__(self, title: str, above: QWidget | None = None) -> None:
        """Put `above` between the title and the plot."""
        self.title = label(title, strong=True)
        self.values = ValueLine()
        self.absent = elided(meaning="muted")
        self.view = ChartView(title)
        self._top = AxisTop()
        self._bands: tuple[object, ...] = ()
        self.has_data = True
        """Whether the visible span has any value."""
        self.top: float | None = None
        """The highest value of the axis; None while each device has a lane."""
        header = row(self.title, self.values, Stretch(self.absent))
        self.summary = SpanSummary()
        header.addWidget(self.summary)
        layout = column(header, Stretch(self.view), spacing=theme.XS)
        if above is not None:
            layout.insertWidget(1, above)
        self.frame = card(layout)
        layout.setContentsMargins(theme.M, theme.S, theme.M, theme.XS)
        self.view.setMinimumHeight(theme.px(_LOWEST))

    def show_chart(self, chart: ChartModel, colors: dict[str, str]) -> None:
        """Show everything but the curves, which `show_contents` shows."""
        shown = [value for value in chart.values if value.device in colors]
        set_text(self.title, chart.title)
        texts = [(value.text, _color(shown, value.device, colors)) for value in shown]
        self.values.show_values(texts if chart.absent is None else [], chart.unit)
        reasons = [f"{value.label}: {value.reason}" for value in shown if value.reason is not None]
        absent = "; ".join(reasons) if chart.absent is None else chart.absent
        show_if_any(self.absent, absent)
        set_tooltip(self.absent, self.absent.text())
        set_tooltip(self.frame, chart.tooltip)

    def show_contents(
        self,
        chart: ChartModel,
        limits: tuple[float, float],
        contents: ChartContents,
        colors: dict[str, str],
        moments: Sequence[tuple[float, str]] = (),
        behind: Mapping[str, Curve] | None = None,
    ) -> None:
        """Draw the curves: those of many devices in lanes, unless others are behind them.

        Args:
            limits: Both ends of the time axis.
            moments: Times of vertical lines, and their colours.
            behind: The curves of the other devices while one is in focus.
        """
        behind = behind or {}
        values = [y for _, y in (*contents.lines.values(), *contents.ghosts.values())]
        values += [band.high for band in contents.bands.values()]
        values += [y for _, y in behind.values()]
        highest = np.fmax.reduce([np.fmax.reduce(y, initial=0.0) for y in values], initial=0.0)
        top, devices = self._top.fit(float(highest), chart.ceiling), tuple(contents.lines)
        self.has_data = any(not bool(np.isnan(y).all()) for _, y in contents.lines.values())
        lanes = len(devices) >= LANES_FROM
        curves = self.view.curves
        if lanes:
            contents = in_lanes(contents, devices, top)
            numbers = [lane_label(v.label) for v in chart.values if v.device in devices]
            self.view.show_lanes(*limits, numbers)
        else:
            self.view.show_range(*limits, chart.floor, top)
            self.view.show_empty(not self.has_data)
        self.top = None if lanes else top
        curves.limit = None if lanes else chart.limit
        bands = (contents.past, limits, tuple(colors.values()), lanes and top)
        if self._bands != bands:  # these are many rectangles that seldom change
            self._bands = bands
            curves.show_bands(contents.bands, colors, contents.step)
        curves.show_ghosts(contents.ghosts, colors)
        curves.moments = list(moments)
        curves.show_behind(dict(behind), theme.tokens().muted)
        low = floors(devices) if lanes else dict.fromkeys(devices, chart.floor)
        curves.show_fill(contents.lines, colors, low, self.view.plot_size)
        curves.show_paths(contents.lines, colors)

    def show_cursor(
        self, chart: ChartModel, moment: float, texts: dict[str, str], colors: dict[str, str]
    ) -> None:
        """Draw a vertical line, and show each device's value there instead of the current one."""
        self.view.curves.cursor = moment
        self.values.show_values(
            [(text, _color(texts, device, colors)) for device, text in texts.items()], chart.unit
        )

    def hide_cursor(self) -> None:
        """Remove the vertical line."""
        self.view.curves.cursor = None


def _color(shown: Sized, device: str, colors: dict[str, str]) -> str | None:
    """Return the colour of a device's value; None while it is alone, or the devices have lanes."""
    return colors[device] if 1 < len(shown) < LANES_FROM else None
