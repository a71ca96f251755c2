"""Paint all curves of a chart, and its grid, as a single graphics item.

A plotting library spends most of its time on finding the bounds of each curve, which a chart with
a given range does not need. The bounding box of this item is simply the view.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gpudeck.app.charts.fleet_curves import FleetCurves
from gpudeck.app.charts.past_curves import Band
from gpudeck.app.charts.plotting import pg
from gpudeck.app.charts.series import Floats
from gpudeck.app.widgets import theme

_PALE = 0.3
"""Opacity of all bands together, which must not hide the curves."""
_GHOST, _BEHIND = 0.5, 0.35
"""Opacity of the curves of another time, and of those behind the curve in focus."""
_GHOST_HUE = 3
"""The place in `series` of the hue of another time: unlike the accent and all alerts."""
_FILL = 0.13
_LEAST_MARK = 3.0
"""The least pixels of the width and the height of a mark."""
_SHADES = 256
"""The number of colours of a heat map."""
_LINED = 8
"""The least pixels of height of a heat map's rows that have a line between them."""


class Curves(pg.GraphicsObject):  # type: ignore[misc]
    """Paint lines one pixel wide, with gaps where values are NaN, in front of bands and ghosts.

    A band is a row of rectangles, and the fill under the lines an image that NumPy makes: wide
    lines or polygons take thirty times as long to paint.
    """

    def __init__(self) -> None:
        super().__init__()
        self._box = QRectF(0, 0, 1, 1)
        self.grid: list[float] = []
        """Values of the horizontal lines."""
        self.limit: float | None = None
        """Value of the dashed line."""
        self.threshold: float | None = None
        """Value of the line that the user can drag."""
        self.levels: list[tuple[float, str]] = []
        """Values and colours of dashed lines in lanes."""
        self.marks: list[tuple[QRectF, str]] = []
        """What happened in a lane: the part of the plane along its upper edge, and a colour."""
        self._grid_pen = self._limit_pen = QPen()
        self.paths: dict[str, tuple[QPen, QPainterPath]] = {}
        self.behind: list[tuple[QPen, QPainterPath]] = []
        """The curves behind the one in focus."""
        self._fill = QImage()
        self._heat: tuple[QImage, QRectF] | None = None
        """A heat map, and the part of the plane that it covers."""
        self.bands: list[tuple[QColor, list[QRectF]]] = []
        self.ghosts: list[tuple[QPen, QPainterPath]] = []
        """The curves of another time, for comparison."""
        self.moments: list[tuple[float, str]] = []
        """Times and colours of the vertical lines."""
        self.cursor: float | None = None

    def recolor(self, grid: str, limit: str) -> None:
        """Take other colours for the grid and the limit."""
        self._grid_pen = pg.mkPen(grid, width=1)
        self._limit_pen = pg.mkPen(limit, width=1, style=Qt.PenStyle.DashLine)
        self.update()

    def show_range(self, start: float, end: float, floor: float, top: float) -> None:
        """Show this part of the plane."""
        self.prepareGeometryChange()
        self._box = QRectF(start, floor, end - start, top - floor)

    def show_paths(self, series: dict[str, tuple[Floats, Floats]], colors: dict[str, str]) -> None:
        """Draw the curve of each device, the last one on top.

        Args:
            series: Times in seconds and values of each device, [n] each.
        """
        self.paths = {}
        for device, (times, values) in series.items():
            broken = bool(np.isnan(values).any())
            path = pg.arrayToQPath(
                times, values, connect="finite" if broken else "all", finiteCheck=broken
            )
            self.paths[device] = _pen(colors[device]), path
        self.update()

    def show_behind(self, series: dict[str, tuple[Floats, Floats]], color: str) -> None:
        """Draw curves in one pale colour behind all others."""
        pen = _pen(color, _BEHIND)
        self.behind = [
            (pen, pg.arrayToQPath(x, y, connect="finite")) for x, y in series.values() if len(x)
        ]

    def show_fill(
        self,
        series: dict[str, tuple[Floats, Floats]],
        colors: dict[str, str],
        floors: dict[str, float],
        size: tuple[int, int],
    ) -> None:
        """Fill the area between each curve and its floor lightly.

        Args:
            floors: The value where the fill of each device ends.
            size: Pixels of the plotted area.
        """
        width, height = max(size[0], 1), max(size[1], 1)
        box = self._box
        moments = box.left() + (np.arange(width) + 0.5) * box.width() / width
        levels = box.top() + (np.arange(height) + 0.5) * box.height() / height  # upwards
        pixels = np.zeros((height, width), np.uint32)
        for device, (times, values) in series.items():
            if not len(times):
                continue
            top = np.interp(moments, times, values, left=np.nan, right=np.nan)
            floor = floors[device]
            first = int(np.searchsorted(levels, floor))
            last = int(np.searchsorted(levels, np.nanmax(top, initial=floor))) + 1
            part = levels[first:last, None] <= top  # NaN is never reached
            pixels[first:last][part] = _premultiplied(colors[device], _FILL)
        self._fill = QImage(
            pixels[::-1].tobytes(),
            width,
            height,
            4 * width,
            QImage.Format.Format_ARGB32_Premultiplied,
        ).copy()

    def show_heat(self, fleet: FleetCurves | None, floor: float = 0.0, top: float = 1.0) -> None:
        """Colour each bin of each device by its value, in rows of height 1, the first at the top.

        Args:
            fleet: None removes the heat map.
            floor: The value with the palest colour.
            top: The value with the deepest colour.
        """
        if fleet is None:
            self._heat = None
            return
        count, bins = fleet.means.shape
        shares = np.clip((np.nan_to_num(fleet.means) - floor) / ((top - floor) or 1.0), 0.0, 1.0)
        pixels = _shades(theme.tokens())[(shares * (_SHADES - 1)).astype(int)]
        pixels[np.isnan(fleet.means)] = 0
        image = QImage(
            pixels.tobytes(), bins, count, 4 * bins, QImage.Format.Format_ARGB32_Premultiplied
        )
        self._heat = image.copy(), QRectF(fleet.start, 0.0, bins * fleet.step, count)
        self.update()

    def show_bands(self, bands: dict[str, Band], colors: dict[str, str], step: float) -> None:
        """Draw the range of values of each device; `step` is the width of a bin in seconds."""
        self.bands = []
        for device, strand in bands.items():
            read = ~np.isnan(strand.low)
            times, shade = strand.times[read], QColor(colors[device])
            shade.setAlphaF(_PALE / len(bands))
            # each ends where the next begins, since overlaps would be seen as stripes
            middles = (times[:-1] + times[1:]) / 2
            left = np.concatenate((times[:1] - step / 2, np.maximum(middles, times[1:] - step)))
            right = np.concatenate((np.minimum(middles, times[:-1] + step), times[-1:] + step / 2))
            edges = zip(
                left.tolist(),
                right.tolist(),
                strand.low[read].tolist(),
                strand.high[read].tolist(),
                strict=True,
            )
            self.bands.append(
                (shade, [QRectF(x, low, end - x, high - low) for x, end, low, high in edges])
            )

    def show_ghosts(self, series: dict[str, tuple[Floats, Floats]], colors: dict[str, str]) -> None:
        """Draw curves of another time, pale; see `show_paths`."""
        self.ghosts = [
            (_pen(colors[d], _GHOST), pg.arrayToQPath(x, y, connect="finite"))
            for d, (x, y) in series.items()
            if len(x)
        ]

    def boundingRect(self) -> QRectF:
        return self._box

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        left, right = self._box.left(), self._box.right()
        if self._heat is not None:
            self._paint_heat(painter, *self._heat)
        painter.setPen(self._grid_pen)
        painter.drawLines([QLineF(left, y, right, y) for y in self.grid])
        if self.limit is not None:
            painter.setPen(self._limit_pen)
            painter.drawLine(QLineF(left, self.limit, right, self.limit))
        if self.threshold is not None:
            painter.setPen(_pen(theme.tokens().hot, _GHOST))
            painter.drawLine(QLineF(left, self.threshold, right, self.threshold))
        for level, color in self.levels:
            dashed = _pen(color, _GHOST)
            dashed.setStyle(Qt.PenStyle.DashLine)
            painter.setPen(dashed)
            painter.drawLine(QLineF(left, level, right, level))
        painter.setPen(Qt.PenStyle.NoPen)
        for shade, boxes in self.bands:
            painter.setBrush(shade)
            painter.drawRects(boxes)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if not self._fill.isNull():
            self._paint_fill(painter)
        for pen, path in self.behind:
            painter.setPen(pen)
            painter.drawPath(path)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for pen, path in (*self.ghosts, *self.paths.values()):
            painter.setPen(pen)
            painter.drawPath(path)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
        self._paint_marks(painter)
        moments = list(self.moments)
        if self.cursor is not None:
            moments.append((self.cursor, self._limit_pen.color().name()))
        for moment, color in moments:
            painter.setPen(_pen(color))
            painter.drawLine(QLineF(moment, self._box.top(), moment, self._box.bottom()))

    def _paint_heat(self, painter: QPainter, image: QImage, covered: QRectF) -> None:
        """Paint the heat map, with a line between rows that are high enough for one."""
        moved = painter.worldTransform()
        inside, area = moved.mapRect(self._box), moved.mapRect(covered)
        painter.save()
        painter.resetTransform()
        painter.setClipRect(inside)
        painter.drawImage(area, image)
        pitch = area.height() / max(image.height(), 1)
        if pitch >= _LINED:
            painter.setPen(QColor(theme.tokens().surface))
            lines = (area.top() + at * pitch for at in range(1, image.height()))
            painter.drawLines([QLineF(inside.left(), y, inside.right(), y) for y in lines])
        painter.restore()

    def _paint_marks(self, painter: QPainter) -> None:
        """Paint the marks; however short they are, they can be seen."""
        moved = painter.worldTransform()
        inside = moved.mapRect(self._box)
        painter.save()
        painter.resetTransform()
        for place, color in self.marks:
            box = moved.mapRect(place)
            box.setWidth(max(box.width(), _LEAST_MARK))
            box.setHeight(max(box.height(), _LEAST_MARK))
            painter.fillRect(box & inside, QColor(color))
        painter.restore()

    def _paint_fill(self, painter: QPainter) -> None:
        """Paint the fill pixel by pixel: an image that is mirrored takes ten times as long."""
        area = painter.worldTransform().mapRect(self._box).toRect()
        painter.save()
        painter.resetTransform()
        if area.size() == self._fill.size():
            painter.drawImage(area.topLeft(), self._fill)
        else:
            painter.drawImage(area, self._fill)
        painter.restore()


@cache
def _shades(_: theme.Tokens) -> NDArray[np.uint32]:
    """Return the colours of a heat map in a scheme as pixels, from the lowest value to the top."""
    return np.array([theme.shade(at / (_SHADES - 1)).rgba() for at in range(_SHADES)], np.uint32)


@cache
def _premultiplied(color: str, alpha: float) -> int:
    """Return a translucent colour as a pixel of an image."""
    shade = QColor(color)
    channels = (round(alpha * c) for c in (shade.red(), shade.green(), shade.blue()))
    red, green, blue = channels
    return round(255 * alpha) << 24 | red << 16 | green << 8 | blue


def ghost_colors(colors: dict[str, str]) -> dict[str, str]:
    """Return the colours of curves of another time, by device.

    They have another hue where all devices have the same one.
    """
    alike = len(set(colors.values())) == 1
    return dict.fromkeys(colors, theme.tokens().series[_GHOST_HUE]) if alike else colors


@cache
def _pen(color: str, alpha: float = 1.0) -> QPen:
    shade = QColor(color)
    shade.setAlphaF(alpha)
    pen = QPen(shade, 1)
    pen.setCosmetic(True)  # one pixel wide at every scale
    return pen
