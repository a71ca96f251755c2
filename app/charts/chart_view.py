"""Plot curves over a time axis, with about as many points as there are pixels."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFont, QPainter
from PySide6.QtWidgets import QGraphicsGridLayout, QGraphicsSceneWheelEvent, QWidget

from gpudeck.app.charts.clock_axis import ClockAxis
from gpudeck.app.charts.curves import Curves
from gpudeck.app.charts.plotting import pg
from gpudeck.app.charts.scales import ticks
from gpudeck.app.charts.series import Floats
from gpudeck.app.language.texts import tr, tr_decimal, tr_noop
from gpudeck.app.widgets import theme

_AXIS_WIDTH = 48


def axis_width() -> int:
    """Return the pixels left of the plotted area."""
    return theme.px(_AXIS_WIDTH)


def clock_height() -> int:
    """Return the pixels of the time axis below the plotted area."""
    return theme.px(_CLOCK)


def lanes_height(count: int) -> int:
    """Return the pixels of height of a chart in which each of `count` lanes has its name."""
    return LANE_TOP + clock_height() + theme.px(_DENSE_LABEL) * count


def lane_font(height: float) -> QFont:
    """Return the font of the texts beside lanes of this height."""
    return theme.font(_SMALL_LABEL if height < theme.px(_LABEL) else theme.SMALL)


EDGE_WIDTH = 1
"""Pixels right of the plotted area."""
_LABEL, _STEPS = 13, 5
"""Pixels of height that a value beside the axis needs, and the most steps between values."""
_SMALL_LABEL, _DENSE_LABEL = 10, 10
"""The size of the names of low lanes, and the pixels of height that one needs."""
LANE_TOP, _CLOCK = 4, 20
"""Pixels above the plotted area, and of the time axis below it."""
_GRIP = 6
"""Pixels beside a threshold where it can be taken hold of."""
_EMPTY_SHARE = 0.3
"""Share of the shown time that may be empty without a word."""
_GAP_SHARE, _NO_READINGS = 0.04, tr_noop("no readings")
"""Share of the shown time from which on a gap is named, and its name."""
_EDGE = 0.02
"""Share of the range that is added, so that curves at its ends are not cut off."""


class _TimeBox(pg.ViewBox):  # type: ignore[misc]
    """Turn drags and the wheel into moves of the time axis that all charts share."""

    panned = Signal(float)
    """Carries seconds."""
    zoomed = Signal(float, float)
    """Carries a factor, and the moment that stays in its place."""
    hovered = Signal(object)
    """Carries the moment under the pointer; None once the pointer has left."""
    clicked = Signal(float)
    """Carries the value that was clicked at."""

    dragged = Signal(float, bool)
    """Carries the value that the threshold was dragged to, and whether it was let go there."""

    def __init__(self) -> None:
        super().__init__(enableMenu=False, enableMouse=False)
        self.disableAutoRange()
        self.threshold: float | None = None
        """The value of the line that can be dragged."""
        self._dragging = False
        self.level: float | None = None
        """The value under the pointer; None while it is elsewhere."""

    @property
    def held(self) -> bool:
        """Report if the line is dragged, or the pointer is on it."""
        if self._dragging or self.threshold is None or self.level is None:
            return self._dragging
        height = self.viewRange()[1][1] - self.viewRange()[1][0]
        pixels = abs(self.level - self.threshold) / height * self.height()
        return bool(pixels <= _GRIP)

    def grips(self, point: QPointF) -> bool:
        """Report if a point is on the line that can be dragged."""
        if self.threshold is None:
            return False
        line = self.mapFromView(QPointF(0.0, self.threshold)).y()
        return abs(float(point.y() - line)) <= _GRIP

    def mouseDragEvent(self, event: object, axis: int | None = None) -> None:
        event.accept()  # type: ignore[attr-defined]
        if event.isStart():  # type: ignore[attr-defined]
            self._dragging = self.grips(event.buttonDownPos())  # type: ignore[attr-defined]
        if self._dragging:
            level = float(self.mapToView(event.pos()).y())  # type: ignore[attr-defined]
            self._dragging = not event.isFinish()  # type: ignore[attr-defined]
            self.dragged.emit(level, not self._dragging)
            return
        before, now = (self.mapToView(p).x() for p in (event.lastPos(), event.pos()))  # type: ignore[attr-defined]
        self.panned.emit(before - now)

    def wheelEvent(self, event: QGraphicsSceneWheelEvent, axis: int | None = None) -> None:
        event.accept()
        self.zoomed.emit(0.8 ** (event.delta() / 120), self.mapToView(event.pos()).x())

    def hoverEvent(self, event: object) -> None:
        if event.isExit():  # type: ignore[attr-defined]
            self.level = None
            self.hovered.emit(None)
        else:
            self.level = float(self.mapToView(event.pos()).y())  # type: ignore[attr-defined]
            shape = Qt.CursorShape.SplitVCursor if self.grips(event.pos()) else None  # type: ignore[attr-defined]
            self.unsetCursor() if shape is None else self.setCursor(shape)
            self.hovered.emit(float(self.mapToView(event.pos()).x()))  # type: ignore[attr-defined]

    def mouseClickEvent(self, event: object) -> None:
        self.clicked.emit(float(self.mapToView(event.pos()).y()))  # type: ignore[attr-defined]


class _Plot(pg.GraphicsWidget):  # type: ignore[misc]
    """Arrange a view box between its axes, five times as fast as the library's PlotItem."""

    def __init__(self, box: pg.ViewBox, left: pg.AxisItem, bottom: pg.AxisItem) -> None:
        super().__init__()
        layout = QGraphicsGridLayout()
        layout.setContentsMargins(0, LANE_TOP, EDGE_WIDTH, 0)  # room for the topmost label
        layout.setSpacing(0)
        for item, line, side in ((left, 0, 0), (box, 0, 1), (bottom, 1, 1)):
            layout.addItem(item, line, side)
        layout.setRowStretchFactor(0, 1)
        layout.setColumnStretchFactor(1, 1)
        self.setLayout(layout)
        for axis in (left, bottom):
            axis.linkToView(box)


class ChartView(pg.GraphicsView):  # type: ignore[misc]
    """Show axes, grid, limit and curves."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(tr("{title} over time", title=title))
        # nearly everything moves, and finding out what did would cost more
        self.setViewportUpdateMode(self.ViewportUpdateMode.FullViewportUpdate)
        self.box = _TimeBox()
        self.axis, self.clock = pg.AxisItem("left"), ClockAxis()
        self.axis.setWidth(axis_width())
        self.axis.enableAutoSIPrefix(False)
        self.clock.setHeight(clock_height())
        self.setCentralItem(_Plot(self.box, self.axis, self.clock))
        self.curves = Curves()
        self.box.addItem(self.curves, ignoreBounds=True)
        self._floor, self._scale = 0.0, (0.0, 0)
        self._lanes: tuple[str, ...] = ()
        """The names of the lanes that are shown."""
        self._threshold_text = ""
        self._begin: float | None = None
        """Where the readings begin, if much of the time before them is shown."""
        self._gap: tuple[float, float] | None = None
        """A stretch of time without readings that is wide enough for a word."""
        self._tokens: theme.Tokens | None = None
        self.axis_labels: list[str] = []
        self.box.sigResized.connect(self._fit_ticks)
        self.show_empty(True)

    def useOpenGL(self, b: bool = True) -> None:
        """Use a viewport that was made here, and no OpenGL.

        To identify a viewport that Qt made, PySide would make all classes of widgets.
        """
        self.setViewport(QWidget())

    def show_threshold(self, level: float | None, text: str) -> None:
        """Draw a line that can be dragged, with a text at its right end.

        Args:
            level: Its value; None draws no line.
        """
        if (level, text) != (self.box.threshold, self._threshold_text):
            self.box.threshold, self._threshold_text = level, text
            self.curves.threshold = level
            self.curves.update()

    def show_begin(self, first: float | None, start: float, end: float) -> None:
        """Say when the readings begin where they leave much of the shown time empty.

        Args:
            first: The moment of the first reading; None without any.
            start: The left end of the time axis.
            end: The right end.
        """
        late = first is not None and first - start > _EMPTY_SHARE * (end - start)
        self._begin = first if late else None

    def show_gap(self, read: Floats) -> None:
        """Say so where the longest time between two readings is a good part of what is shown.

        Args:
            read: The times of readings, [n] in rising order.
        """
        self._gap = None
        if len(read) > 1:
            at = int(np.argmax(np.diff(read)))
            start, end = float(read[at]), float(read[at + 1])
            (left, right), _ = self.box.viewRange()
            self._gap = (start, end) if end - start > _GAP_SHARE * (right - left) else None

    def drawForeground(self, painter: QPainter, rect: QRectF | QRect) -> None:
        """Write the threshold's text while it is held, and when the readings begin."""
        super().drawForeground(painter, rect)
        if self._begin is not None:
            self._write_begin(painter, self._begin)
        if self._gap is not None:
            self._write_gap(painter, *self._gap)
        if self.box.threshold is not None and self.box.held:
            self._write_threshold(painter, self.box.threshold)

    def _write_begin(self, painter: QPainter, first: float) -> None:
        plot = self.box.sceneBoundingRect()
        right = self.box.mapToScene(self.box.mapFromView(QPointF(first, 0.0))).x()
        painter.setFont(theme.font(theme.SMALL))
        painter.setPen(QColor(theme.tokens().muted))
        at = time.strftime("%H:%M:%S", time.localtime(first))
        text = tr("No readings before {time}", time=at)
        room = QRectF(plot.left(), plot.top(), right - plot.left(), plot.height())
        if painter.fontMetrics().horizontalAdvance(text) + 2 * theme.S <= room.width():
            painter.drawText(room, int(Qt.AlignmentFlag.AlignCenter), text)

    def _write_gap(self, painter: QPainter, start: float, end: float) -> None:
        plot = self.box.sceneBoundingRect()
        left, right = (
            self.box.mapToScene(self.box.mapFromView(QPointF(at, 0.0))).x() for at in (start, end)
        )
        painter.setFont(theme.font(theme.SMALL))
        painter.setPen(QColor(theme.tokens().muted))
        # a gap may begin before what is shown: its text stays off the axis and the readings
        room = QRectF(left, plot.top(), right - left, plot.height()) & plot
        flags, text = int(Qt.AlignmentFlag.AlignCenter) | Qt.TextFlag.TextWordWrap, tr(_NO_READINGS)
        if painter.boundingRect(room, flags, text).width() <= room.width():
            painter.drawText(room, flags, text)

    def _write_threshold(self, painter: QPainter, level: float) -> None:
        t = theme.tokens()
        plot = self.box.sceneBoundingRect()
        y = self.box.mapToScene(self.box.mapFromView(QPointF(0.0, level))).y()
        painter.setFont(theme.font(theme.SMALL))
        metrics = painter.fontMetrics()
        width, height = metrics.horizontalAdvance(self._threshold_text) + 10, metrics.height() + 2
        top = min(max(y - height / 2, plot.top()), plot.bottom() - height)
        pill = QRectF(plot.left() + 4, top, width, height)  # the newest values are on the right
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(t.hot))
        painter.setBrush(QColor(t.surface))
        painter.drawRoundedRect(pill, height / 2, height / 2)
        painter.drawText(pill, int(Qt.AlignmentFlag.AlignCenter), self._threshold_text)

    @property
    def pixels(self) -> int:
        """Return the width of the plotted area."""
        return max(int(self.box.width()), 1)

    @property
    def plot_size(self) -> tuple[int, int]:
        """Return width and height of the plotted area in pixels."""
        return self.pixels, max(int(self.box.height()), 1)

    def show_lanes(self, start: float, end: float, names: Sequence[str]) -> None:
        """Show a stretch of time, and a lane of height 1 for each name, the first at the top."""
        count = len(names)
        self.box.setXRange(start, end, padding=0)
        self.curves.show_range(start, end, 0.0, float(count))
        self.curves.grid = [float(at) for at in range(count)]
        if self._lanes != tuple(names):
            self._lanes, self._scale = tuple(names), (0.0, 0)
            self.box.setYRange(0.0, float(count), padding=0)
            self._label_lanes()
        self.scene().prepareForPaint()

    def _label_lanes(self) -> None:
        """Name as many lanes beside the axis as there is room for."""
        count = len(self._lanes)
        small = self.box.height() < theme.px(_LABEL) * count
        self.axis.setStyle(tickFont=lane_font(self.box.height() / max(count, 1)))
        needed = theme.px(_DENSE_LABEL if small else _LABEL)
        every = -(-needed * count // max(int(self.box.height()), 1))
        chosen = [(count - 0.5 - at, name) for at, name in enumerate(self._lanes)][:: max(every, 1)]
        self.axis_labels = [name for _, name in chosen]
        self.axis.setTicks([chosen])
        self.axis.setStyle(showValues=True)

    def show_range(self, start: float, end: float, floor: float, top: float) -> None:
        """Show a stretch of time and a range of values."""
        self.box.setXRange(start, end, padding=0)
        margin = _EDGE * (top - floor)
        self.curves.show_range(start, end, floor - margin, top + margin)
        if (floor, top) != (self._floor, self._scale[0]) or self._lanes:
            self._lanes = ()
            self._floor, self._scale = floor, (top, 0)
            self.box.setYRange(floor, top, padding=_EDGE)
            self._fit_ticks()
        # otherwise the transform changes while painting, and everything is painted twice
        self.scene().prepareForPaint()

    def _fit_ticks(self) -> None:
        """Show as many values beside the axis as there is room for."""
        if self._lanes:
            self._label_lanes()
            return
        scale = (self._scale[0], min(max(int(self.box.height()) // theme.px(_LABEL), 1), _STEPS))
        if scale != self._scale:
            self._scale = scale
            values = [at for at in ticks(*scale) if at >= self._floor]
            self.axis_labels = [tr_decimal(f"{at:g}") for at in values]
            self.axis.setTicks([list(zip(values, self.axis_labels, strict=True))])

    def show_empty(self, empty: bool) -> None:
        """Hide the axis and the grid while there are no values: their range would mean nothing."""
        shown = (at for at in ticks(*self._scale) if at >= self._floor)
        self.curves.grid = [] if empty else list(shown)
        if empty == self.axis.style["showValues"]:
            self.axis.setStyle(showValues=not empty)

    def recolor(self) -> None:
        """Take the colours of the current scheme.

        Qt reports a change of the palette even if the colours have stayed the same.
        """
        t = theme.tokens()
        if t is self._tokens:
            return
        self._tokens = t
        self.setBackground(t.surface)
        font = theme.font(theme.SMALL)
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
