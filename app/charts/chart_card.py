"""Show a chart in a card, with its title and current values above it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gpudeck.app.charts.chart_model import ChartModel
from gpudeck.app.charts.chart_source import ChartContents, Curve
from gpudeck.app.charts.chart_view import LANE_TOP, ChartView, clock_height, lanes_height
from gpudeck.app.charts.curves import ghost_colors
from gpudeck.app.charts.fleet_curves import FleetCurves
from gpudeck.app.charts.heat_scale import HeatScale
from gpudeck.app.charts.lanes import FROM as LANES_FROM
from gpudeck.app.charts.lanes import floors, in_lanes, lane_levels
from gpudeck.app.charts.scales import AxisTop, round_floor
from gpudeck.app.charts.series import Floats
from gpudeck.app.charts.value_line import LaneValues, ValueLine
from gpudeck.app.format.values import lane_label
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
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
from gpudeck.app.widgets.icon_button import IconButton

_SHARE_FIELD = "util"
"""The field whose axis always ends at 100 %."""
_HEAT_ROW = 1
"""The least pixels of a device's row in a heat map."""
_LOWEST = 72
"""The least height of a plot at the usual size of text."""
_MARK = 0.12
"""The share of a lane's height, from its upper edge, that a mark takes."""


class SpanSummary(QWidget):
    """Show the lowest, mean and highest value of the visible span, on the right of a header."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setToolTip(tr("The lowest, mean and highest value of the time that is shown"))

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
        self.lane_values = LaneValues(clock_height())
        self._top = AxisTop()
        self._bands: tuple[object, ...] = ()
        self._lane_scale = ""
        """The values at the lower and the upper edge of each lane, in words."""
        self.has_data = True
        """Whether the visible span has any value."""
        self.top: float | None = None
        """The highest value of the axis; None while each device has a lane."""
        self._lanes: tuple[tuple[str, ...], float, float] = (), 0.0, 0.0
        """The devices that have lanes, and the values at both edges of each lane."""
        self.enlarge = IconButton(
            "enlarge", tr("Enlarge"), tr("Give this value the full lanes (V)")
        )
        self.enlarge.hide()
        header = row(self.title, self.values, Stretch(self.absent))
        self.summary = SpanSummary()
        self.heat_scale = HeatScale()
        self.alert = label(size="small", meaning="hot")
        self.limit = label(size="small", meaning="muted")
        for line in (self.alert, self.limit):
            line.hide()
            header.addWidget(line)
        header.addWidget(self.summary)
        header.addWidget(self.heat_scale)
        header.addWidget(self.enlarge)
        plot = row(Stretch(self.view), self.lane_values, spacing=0)
        layout = column(header, Stretch(plot), spacing=theme.XS)
        if above is not None:
            layout.insertWidget(1, above)
        self.frame = card(layout)
        layout.setContentsMargins(theme.M, theme.S, theme.M, theme.XS)
        self.view.setMinimumHeight(theme.px(_LOWEST))

    def show_chart(self, chart: ChartModel, colors: dict[str, str]) -> None:
        """Show everything but the curves, which `show_contents` shows."""
        shown = [value for value in chart.values if value.device in colors]
        texts = {value.device: value.text for value in shown} if chart.absent is None else {}
        self._show_values(texts, chart, colors)
        reasons = [f"{value.label}: {value.reason}" for value in shown if value.reason is not None]
        self._show_head(chart, "; ".join(reasons) if chart.absent is None else chart.absent)

    def _show_head(self, chart: ChartModel, absent: str) -> None:
        """Show the title, why there are no values, and what the chart means."""
        set_text(self.title, chart.title)
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
        devices = tuple(contents.lines)
        lanes = len(devices) >= LANES_FROM
        if lanes:
            floor, top = self._lane_range(chart, values)
            scale = tr_decimal(f"{floor:g}–{top:g}")
            self._lane_scale = tr("each lane {range}", range=scale)
        else:
            highest = np.fmax.reduce([np.fmax.reduce(y, initial=0.0) for y in values], initial=0.0)
            floor, top = chart.floor, self._top.fit(float(highest), chart.ceiling)
        self.has_data = any(not bool(np.isnan(y).all()) for _, y in contents.lines.values())
        self.heat_scale.hide()
        self.view.show_begin(_first_reading(contents), *limits)
        curves = self.view.curves
        if lanes:
            contents = in_lanes(contents, devices, floor, top)
            numbers = [lane_label(v.label) for v in chart.values if v.device in devices]
            self.view.show_lanes(*limits, numbers)
            least = max(lanes_height(len(numbers)), theme.px(_LOWEST))
            if self.view.minimumHeight() != least:
                self.view.setMinimumHeight(least)
        else:
            self.view.show_range(*limits, chart.floor, top)
            self.view.show_empty(not self.has_data)
        self.view.show_gap(_read_times(contents))
        self.top = None if lanes else top
        self._lanes = (devices, floor, top) if lanes else ((), 0.0, 0.0)
        curves.levels, curves.marks = [], []
        curves.limit = None if lanes else chart.limit
        bands = (contents.past, limits, tuple(colors.values()), lanes and (floor, top))
        if self._bands != bands:  # these are many rectangles that seldom change
            self._bands = bands
            curves.show_bands(contents.bands, colors, contents.step)
        curves.show_heat(None)
        curves.show_ghosts(contents.ghosts, ghost_colors(colors))
        curves.moments = list(moments)
        curves.show_behind(dict(behind), theme.tokens().muted)
        low = floors(devices) if lanes else dict.fromkeys(devices, chart.floor)
        curves.show_fill(contents.lines, colors, low, self.view.plot_size)
        curves.show_paths(contents.lines, colors)

    def show_fleet(
        self,
        chart: ChartModel,
        limits: tuple[float, float],
        fleet: FleetCurves,
        labels: Mapping[str, str],
        moments: Sequence[tuple[float, str]] = (),
        *,
        named: bool = False,
    ) -> None:
        """Draw so many devices that their curves could not be told apart, as a heat map.

        Args:
            limits: Both ends of the time axis.
            labels: The names of the devices.
            moments: Times of vertical lines, and their colours.
            named: Each row is high enough for its name and its value.
        """
        self._show_head(chart, chart.absent or "")
        self.has_data, self.top = not fleet.empty, None
        self._lanes = fleet.devices, 0.0, 0.0
        self.view.show_begin(None, *limits)
        self.view.show_lanes(*limits, [lane_label(labels[d]) for d in fleet.devices])
        filled = ~np.isnan(fleet.means).all(axis=0)
        self.view.show_gap(np.asarray(fleet.start + np.flatnonzero(filled) * fleet.step, float))
        count = len(fleet.devices)
        least = clock_height() + LANE_TOP + _HEAT_ROW * count
        if named:
            least = lanes_height(count)
        self.view.setMinimumHeight(max(theme.px(_LOWEST), least))
        floor, top = self._lane_range(chart, [fleet.means.ravel()])
        low, high = (tr_decimal(f"{value:g}") for value in (floor, top))
        self.heat_scale.show_ends(low, f"{high} {chart.unit}".strip())
        self.heat_scale.setVisible(self.has_data)
        curves, self._bands = self.view.curves, ()
        curves.show_heat(fleet, floor, top)
        curves.levels, curves.marks = [], []
        curves.grid, curves.limit, curves.moments = [], None, list(moments)
        curves.show_bands({}, {}, fleet.step)
        curves.show_ghosts({}, {})
        curves.show_behind({}, "")
        curves.show_fill({}, {}, {}, (1, 1))
        curves.show_paths({}, {})

    def show_fleet_values(
        self, chart: ChartModel, values: list[str], rows: Sequence[str] = ()
    ) -> None:
        """Show these values of a heat map, and those of its rows at their right ends."""
        self.lane_values.show_texts([*rows])
        self.values.show_values([(text, None) for text in values], chart.unit if values else "")

    def show_lines(self, chart: ChartModel, alert: str) -> None:
        """Say in the header what the lines across the curves mean: the alert, and the limit."""
        show_if_any(self.alert, f"— {alert}" if alert else "")
        known = chart.limit is not None and self.top is not None and self.has_data
        number = tr_decimal(f"{chart.limit:.0f}") if known else ""
        limit = tr("limit {value}", value=f"{number} {chart.unit}".rstrip())
        show_if_any(self.limit, f"– – {limit}" if known else "")

    def show_lane_levels(self, chart: ChartModel, alert: float | None) -> None:
        """Draw the limit and the alert's threshold in every lane that reaches them."""
        t, (devices, floor, top) = theme.tokens(), self._lanes
        self.view.curves.levels = [
            (level, color)
            for value, color in ((chart.limit, t.muted), (alert, t.hot))
            if value is not None
            for level in lane_levels(devices, value, floor, top)
        ]

    def show_lane_marks(self, marks: Iterable[tuple[str, float, float, str]]) -> None:
        """Mark what happened to a device in its own lane.

        Args:
            marks: The device, begin and end in seconds since the epoch, and the colour.
        """
        low = floors(self._lanes[0])
        self.view.curves.marks = [
            (QRectF(start, low[device] + 1 - _MARK, end - start, _MARK), color)
            for device, start, end, color in marks
            if device in low
        ]

    def _lane_range(self, chart: ChartModel, values: Sequence[Floats]) -> tuple[float, float]:
        """Return the values at the lower and the upper edge of each lane.

        Low lanes show how their own values differ, not how far away the limit is.
        """
        highest = np.fmax.reduce([np.fmax.reduce(y, initial=0.0) for y in values], initial=0.0)
        if chart.field == _SHARE_FIELD:
            return chart.floor, self._top.fit(float(highest), chart.ceiling)
        top = self._top.fit(float(highest), 0.0)
        lows = [np.fmin.reduce(y, initial=np.inf) for y in values]
        return round_floor(float(np.fmin.reduce(lows, initial=np.inf)), top), top

    def show_cursor(
        self, chart: ChartModel, moment: float, texts: dict[str, str], colors: dict[str, str]
    ) -> None:
        """Draw a vertical line, and show each device's value there instead of the current one."""
        self.view.curves.cursor = moment
        self._show_values(texts, chart, colors)

    def _show_values(
        self, texts: Mapping[str, str], chart: ChartModel, colors: dict[str, str]
    ) -> None:
        """Show a value for each device: beside its lane, or above all curves."""
        lanes = len(texts) >= LANES_FROM
        self.lane_values.show_texts([*texts.values()] if lanes else [])
        line = [(text, _color(texts, device, colors)) for device, text in texts.items()]
        parts = (self._lane_scale if lanes else "", chart.unit)
        unit = " ".join(filter(None, parts)) if texts else ""
        self.values.show_values([] if lanes else line, unit)

    def hide_cursor(self) -> None:
        """Remove the vertical line."""
        self.view.curves.cursor = None


def _first_reading(contents: ChartContents) -> float | None:
    """Return when the first of all curves begins; None if there are none."""
    found = (
        float(times[at])
        for times, values in contents.lines.values()
        if len(values) and not np.isnan(values[at := int(np.argmin(np.isnan(values)))])
    )
    return min(found, default=None)


def _read_times(contents: ChartContents) -> Floats:
    """Return when any of the devices was read, now or in the time that it is compared with."""
    curves = (*contents.lines.values(), *contents.ghosts.values())
    read = [times[~np.isnan(values)] for times, values in curves]
    return np.unique(np.concatenate(read)) if read else np.empty(0)


def _color(shown: Mapping[str, str], device: str, colors: dict[str, str]) -> str | None:
    """Return the colour of a device's value; None while it is alone."""
    return colors[device] if len(shown) > 1 else None
