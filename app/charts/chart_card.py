"""One chart: a header with the current values, and a curve a device with about as many points as there are pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGraphicsGridLayout, QGraphicsSceneWheelEvent, QVBoxLayout, QWidget

from app.charts.chart_model import Chart
from app.charts.chart_source import ChartContents
from app.charts.clock_axis import ClockAxis
from app.charts.curves import Curves
from app.charts.plotting import pg
from app.charts.scales import Top, ticks
from app.charts.value_line import Values
from app.widgets import theme
from app.widgets.controls import card, elided, label, row, set_text, set_tooltip

AXIS_WIDTH = 42
"""Pixels left of the plotted area."""
EDGE_WIDTH = 1
"""Pixels right of it."""
_LABEL, _STEPS = 13, 5
"""Pixels of height that a figure beside the axis needs; the most steps between them."""
_EDGE = 0.02  # of the range, so that a curve at 0 or at the top is not cut off


class _TimeBox(pg.ViewBox):  # type: ignore[misc]
    """Turns drags and the wheel into moves of the shared time axis instead of its own."""

    panned = Signal(float)
    """By how many seconds."""
    zoomed = Signal(float, float)
    """By which factor, around which moment."""
    hovered = Signal(object)
    """The moment under the pointer; None where it left."""

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

    def hoverEvent(self, event: object) -> None:
        if event.isExit():  # type: ignore[attr-defined]
            self.hovered.emit(None)
        else:
            self.hovered.emit(float(self.mapToView(event.pos()).x()))  # type: ignore[attr-defined]

    def mouseClickEvent(self, event: object) -> None:
        """Nothing to click."""


class _Plot(pg.GraphicsWidget):  # type: ignore[misc]
    """A view box between its axes: what a chart needs of the library's PlotItem, which takes five times as long to make."""

    def __init__(self, box: pg.ViewBox, left: pg.AxisItem, bottom: pg.AxisItem) -> None:
        super().__init__()
        layout = QGraphicsGridLayout()
        layout.setContentsMargins(0, 8, EDGE_WIDTH, 0)  # room for the topmost label
        layout.setSpacing(0)
        for item, line, side in ((left, 0, 0), (box, 0, 1), (bottom, 1, 1)):
            layout.addItem(item, line, side)
        layout.setRowStretchFactor(0, 1)
        layout.setColumnStretchFactor(1, 1)
        self.setLayout(layout)
        for axis in (left, bottom):
            axis.linkToView(box)


class ChartView(pg.GraphicsView):  # type: ignore[misc]
    """The plot itself: axes, grid, limit line, curves."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(f"{title} over time")
        self.setViewportUpdateMode(
            self.ViewportUpdateMode.FullViewportUpdate
        )  # everything moves: finding out what did costs more
        self.box = _TimeBox()
        self.axis, self.clock = pg.AxisItem("left"), ClockAxis()
        self.axis.setWidth(AXIS_WIDTH)
        self.axis.enableAutoSIPrefix(False)
        self.clock.setHeight(20)
        self.setCentralItem(_Plot(self.box, self.axis, self.clock))
        self.curves = Curves()
        self.box.addItem(self.curves, ignoreBounds=True)
        self._scale = (0.0, 0)
        self._tokens: theme.Tokens | None = None
        self.box.sigResized.connect(self._fit_figures)
        self.show_empty(True)

    def useOpenGL(self, b: bool = True) -> None:
        """Never; on a widget that was made here: of one that Qt made PySide finds out what it is by making all classes of widgets."""
        self.setViewport(QWidget())

    @property
    def pixels(self) -> int:
        """Width of the plotted area."""
        return max(int(self.box.width()), 1)

    def show_range(self, start: float, end: float, floor: float, top: float) -> None:
        self.box.setXRange(start, end, padding=0)
        margin = _EDGE * (top - floor)
        self.curves.show_range(start, end, floor - margin, top + margin)
        if top != self._scale[0]:
            self._scale = (top, 0)
            self.box.setYRange(floor, top, padding=_EDGE)
            self._fit_figures()
        self.scene().prepareForPaint()  # otherwise the transform changes while painting, and everything is painted twice

    def _fit_figures(self) -> None:
        """As many beside the axis as there is room for."""
        scale = (self._scale[0], min(max(int(self.box.height()) // _LABEL, 1), _STEPS))
        if scale != self._scale:
            self._scale = scale
            self.axis.setTicks([[(at, f"{at:g}") for at in ticks(*scale)]])

    def show_empty(self, empty: bool) -> None:
        """Without values there are no figures and no grid: they would name a range that nothing was measured in."""
        self.curves.grid = [] if empty else ticks(*self._scale)
        if empty == self.axis.style["showValues"]:
            self.axis.setStyle(showValues=not empty)

    def recolor(self) -> None:
        """In the colours in force, where they are others: Qt says that they changed whenever a widget finds its place in a window."""
        t = theme.tokens()
        if t is self._tokens:
            return
        self._tokens = t
        self.setBackground(t.surface)
        font = self.font()
        font.setPixelSize(theme.SMALL)
        for axis in (self.axis, self.clock):
            axis.setPen(pg.mkPen(t.line, width=1))
            axis.setTextPen(pg.mkPen(t.muted))
            axis.setStyle(
                hideOverlappingLabels=False,
                tickFont=font,
                tickLength=0,
                tickAlpha=0,
                autoExpandTextSpace=False,
                maxTickLevel=0,
            )
        self.curves.recolor(t.grid, t.muted)


class ChartCard:
    """A chart in its card, with its header line."""

    def __init__(self, title: str, above: QWidget | None = None) -> None:
        """`above`: goes between the header and the plot."""
        self.title = label(title, strong=True)
        self.values = Values()
        self.absent = elided(meaning="muted")
        self.view = ChartView(title)
        self._top = Top()
        self._bands: tuple[object, ...] = ()
        header = row(self.title, self.values, self.absent)
        header.setStretch(2, 1)
        layout = QVBoxLayout()
        layout.setSpacing(theme.XS)
        layout.addLayout(header)
        if above is not None:
            layout.addWidget(above)
        layout.addWidget(self.view, 1)
        self.frame = card(layout)
        layout.setContentsMargins(theme.M, theme.S, theme.M, theme.XS)

    def show_chart(self, chart: Chart, colors: dict[str, str]) -> None:
        """The header and the limit; the curves come by `show_series`."""
        shown = [v for v in chart.values if v.device in colors]
        set_text(self.title, chart.title)
        one = len(chart.values) == 1
        self.values.show_values(
            [] if chart.absent else [(v.text, "" if one else colors[v.device]) for v in shown],
            chart.unit,
        )
        reasons = [f"{v.label}: {v.reason}" for v in shown if v.reason]
        set_text(
            self.absent,
            f"N/A: {chart.absent}"
            if chart.absent
            else f"N/A: {'; '.join(reasons)}"
            if reasons
            else "",
        )
        set_tooltip(self.absent, self.absent.text())
        set_tooltip(self.frame, chart.tooltip)
        self.view.curves.limit = chart.limit

    def show_series(
        self,
        chart: Chart,
        limits: tuple[float, float],
        drawn: ChartContents,
        colors: dict[str, str],
        moments: Sequence[tuple[float, str]] = (),
    ) -> None:
        """Draw what there is for this chart; `moments`: upright lines, and their colours."""
        series = drawn.lines
        every = [y for _, y in (*series.values(), *drawn.ghosts.values())] + [
            strand.high for strand in drawn.bands.values()
        ]
        highest = np.fmax.reduce([np.fmax.reduce(y, initial=0.0) for y in every], initial=0.0)
        self.view.show_range(*limits, chart.floor, self._top.fit(float(highest), chart.ceiling))
        self.view.show_empty(all(bool(np.isnan(y).all()) for _, y in series.values()))
        if self._bands != (
            bands := (drawn.page, limits, tuple(colors.values()))
        ):  # many rectangles, which seldom change
            self._bands = bands
            self.view.curves.show_bands(drawn.bands, colors, drawn.step)
        self.view.curves.show_ghosts(drawn.ghosts, colors)
        self.view.curves.moments = list(moments)
        self.view.curves.show_paths(series, colors)

    def show_cursor(self, moment: float | None, texts: list[tuple[str, str]], unit: str) -> None:
        """An upright line, and the values there (text and colour of each) instead of the current ones."""
        self.view.curves.cursor = moment
        if moment is not None:
            self.values.show_values(texts, unit)
