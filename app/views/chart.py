"""One chart: a header with the current values, and a curve a device.

Curves are one pixel wide, not antialiased, not filled, and hold about as many points as there are pixels: that is what keeps eight
devices with ten minutes each within a frame.
"""

from __future__ import annotations

from html import escape

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGraphicsSceneWheelEvent, QVBoxLayout

from app import theme
from app.models.charts import Chart
from app.models.series import Floats, decimate
from app.views.clock_axis import ClockAxis
from app.views.widgets import card, elided, label, row, set_text, set_tooltip

_AXIS_WIDTH = 42
_PIXELS_A_BIN = 2  # a bin draws two points


class _TimeBox(pg.ViewBox):  # type: ignore[misc]
    """Turns drags and the wheel into moves of the shared time axis instead of its own."""

    panned = Signal(float)
    """By how many seconds."""
    zoomed = Signal(float, float)
    """By which factor, around which moment."""

    def __init__(self) -> None:
        super().__init__(enableMenu=False, enableMouse=False)
        self.disableAutoRange()

    def mouseDragEvent(self, event: object, axis: int | None = None) -> None:
        event.accept()  # type: ignore[attr-defined]
        before, now = (self.mapToView(p).x() for p in (event.lastPos(), event.pos()))  # type: ignore[attr-defined]
        self.panned.emit(before - now)

    def wheelEvent(self, event: QGraphicsSceneWheelEvent, axis: int | None = None) -> None:
        event.accept()
        self.zoomed.emit(0.8 ** (event.delta() / 120), self.mapToView(event.pos()).x())

    def mouseClickEvent(self, event: object) -> None:
        """Nothing to click."""


class ChartView(pg.GraphicsView):  # type: ignore[misc]
    """The plot itself: axes, limit line, curves."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(f"{title} over time")
        self.box = _TimeBox()
        self.plot = pg.PlotItem(viewBox=self.box, axisItems={"bottom": ClockAxis("bottom")}, enableMenu=False)
        self.plot.hideButtons()
        self.plot.getAxis("left").setWidth(_AXIS_WIDTH)
        self.plot.getAxis("bottom").setHeight(20)
        self.setCentralItem(self.plot)
        self.limit = pg.InfiniteLine(angle=0, movable=False)
        self.limit.hide()
        self.plot.addItem(self.limit, ignoreBounds=True)
        self.curves: dict[str, pg.PlotCurveItem] = {}
        self._top = 0.0

    def show_devices(self, colors: dict[str, str]) -> None:
        """One curve a device, in these colours."""
        for device in [d for d in self.curves if d not in colors]:
            self.plot.removeItem(self.curves.pop(device))
        for device, color in colors.items():
            if device not in self.curves:
                self.curves[device] = pg.PlotCurveItem(antialias=False)
                self.plot.addItem(self.curves[device], ignoreBounds=True)
            self.curves[device].setPen(pg.mkPen(color, width=1))

    def show_range(self, start: float, end: float, floor: float, top: float) -> None:
        self.box.setXRange(start, end, padding=0)
        if top != self._top:
            self._top = top
            self.box.setYRange(floor, top, padding=0)

    def show_curve(self, device: str, times: Floats, values: Floats) -> None:
        broken = bool(np.isnan(values).any())
        self.curves[device].setData(times, values, connect="finite" if broken else "all", skipFiniteCheck=not broken)

    def show_limit(self, value: float | None) -> None:
        self.limit.setVisible(value is not None)
        if value is not None:
            self.limit.setValue(value)

    def recolor(self) -> None:
        t = theme.tokens()
        self.setBackground(t.surface)
        font = self.font()
        font.setPixelSize(theme.SMALL)
        for name in ("left", "bottom"):
            axis = self.plot.getAxis(name)
            axis.setPen(pg.mkPen(t.line, width=1))
            axis.setTextPen(pg.mkPen(t.muted))
            axis.setStyle(tickFont=font, tickLength=0, autoExpandTextSpace=False, maxTickLevel=0)
        self.limit.setPen(pg.mkPen(t.muted, width=1, style=Qt.PenStyle.DashLine))


class ChartCard:
    """A chart in its card, with its header line."""

    def __init__(self, title: str) -> None:
        self.title = label(title, strong=True)
        self.values = label()
        self.values.setTextFormat(Qt.TextFormat.RichText)
        self.absent = elided(meaning="muted")
        self.view = ChartView(title)
        header = row(self.title, self.values, self.absent, spacing=theme.M)
        header.setStretch(2, 1)
        layout = QVBoxLayout()
        layout.setSpacing(theme.XS)
        layout.addLayout(header)
        layout.addWidget(self.view, 1)
        self.frame = card(layout)
        layout.setContentsMargins(theme.M, theme.S, theme.M, theme.XS)
        self._maximum = 0.0

    def show_chart(self, chart: Chart, colors: dict[str, str]) -> None:
        """The header and the limit; the curves come by `show_series`."""
        shown = [v for v in chart.values if v.device in colors]
        set_text(self.title, chart.title)
        set_text(self.values, "" if chart.absent else _values(chart, [(v.text, v.reason, colors[v.device]) for v in shown]))
        self.values.setVisible(not chart.absent)
        reasons = [f"{v.label}: {v.reason}" for v in shown if v.reason]
        set_text(self.absent, f"N/A: {chart.absent}" if chart.absent else f"N/A: {'; '.join(reasons)}" if reasons else "")
        set_tooltip(self.absent, self.absent.text())
        set_tooltip(self.frame, chart.tooltip)
        self.view.show_devices(colors)
        self.view.show_limit(chart.limit)

    def show_series(self, chart: Chart, limits: tuple[float, float], series: dict[str, tuple[Floats, Floats]]) -> None:
        """`series`: times (s) and values (the chart's unit) of each device, [n] each."""
        start, end = limits
        bin_width = (end - start) / max(self.view.box.width(), 1) * _PIXELS_A_BIN
        highest = 0.0
        for device, (times, values) in series.items():
            first, last = np.searchsorted(times, (start - bin_width, end + bin_width))
            x, y = decimate(times[first:last], values[first:last], bin_width)
            self.view.show_curve(device, x, y)
            if chart.ceiling is None and len(y):
                highest = max(highest, float(np.fmax.reduce(y)) if not np.isnan(y).all() else 0.0)
        self.view.show_range(start, end, chart.floor, chart.ceiling if chart.ceiling is not None else round_top(highest))


def round_top(highest: float) -> float:
    """The top of an axis: the next of 1, 2, 5 times a power of ten, with the values using at least two fifths of it."""
    if not highest > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(highest * 1.05))
    return float(next(step * power for step in (1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0) if step * power >= highest * 1.05))


def _values(chart: Chart, values: list[tuple[str, str, str]]) -> str:
    """The current values as rich text, each in the colour of its curve; of one device in the text's colour."""
    color = theme.tokens().text if len(values) == 1 else ""
    texts = [f'<span style="color:{color or curve}">{escape(text)}</span>' for text, _, curve in values]
    return "&nbsp;&nbsp;".join(texts) + f' <span style="color:{theme.tokens().muted}">{escape(chart.unit)}</span>'
