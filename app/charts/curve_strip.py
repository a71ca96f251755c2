"""Show the curves of values that a job printed or left, as many side by side as have room."""

from __future__ import annotations

import math
from collections.abc import Mapping

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.overlay_chart import OverlaidCurve, OverlayChart
from gpudeck.app.charts.series import Floats
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import grid_layout

_WIDTH, _LEAST, _MOST = 110, 118, 320
"""The least pixels of the width of a chart, and of its height at least and at most."""


class CurveStrip(QWidget):
    """Show a chart for each curve; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.charts: dict[str, OverlayChart] = {}
        self._grid, self._columns = grid_layout(self), 0
        self.setMinimumWidth(theme.px(_WIDTH))  # or rows of many charts would keep it wide
        self.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay the charts out anew where another number of them has room side by side."""
        super().resizeEvent(event)
        self._lay_out()

    def show_curves(self, curves: Mapping[str, tuple[Floats, Floats]]) -> None:
        """Show the steps and the values of each name, [n] each, oldest first."""
        if list(curves) != list(self.charts):
            self._make_charts(curves)
        color = theme.tokens().series[0]
        for name, (steps, values) in curves.items():
            curve = OverlaidCurve(tuple(steps.tolist()), tuple(values.tolist()), color)
            self.charts[name].show_curves((curve,))
        self.setVisible(bool(curves))

    def _make_charts(self, curves: Mapping[str, tuple[Floats, Floats]]) -> None:
        for chart in self.charts.values():
            self._grid.removeWidget(chart)
            chart.deleteLater()
        self.charts = {name: OverlayChart(tr(name)) for name in curves}
        for name, chart in self.charts.items():
            chart.setToolTip(tr(name))
            chart.setMinimumSize(theme.px(_WIDTH), theme.px(_LEAST))
        self._columns = 0
        self._lay_out()

    def _lay_out(self) -> None:
        """Divide the charts into rows of about the same length."""
        room = max(1, (self.width() + theme.S) // (theme.px(_WIDTH) + theme.S))
        rows = math.ceil(len(self.charts) / room)
        columns = math.ceil(len(self.charts) / rows) if rows else 0
        if columns == self._columns:
            return
        self._columns = columns
        for at, chart in enumerate(self.charts.values()):
            self._grid.addWidget(chart, at // columns, at % columns)
        self.setMinimumHeight(rows * theme.px(_LEAST) + (rows - 1) * theme.S)
        self.setMaximumHeight(rows * theme.px(_MOST))
