"""Show the curves of values that a job printed or left, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.overlay_chart import OverlaidCurve, OverlayChart
from gpudeck.app.charts.series import Floats
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import row

_WIDTH, _LEAST, _MOST = 110, 118, 320
"""The least pixels of the width of a chart, and of its height at least and at most."""


class CurveStrip(QWidget):
    """Show a chart for each curve; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.charts: dict[str, OverlayChart] = {}
        self._row = row(spacing=theme.S)
        self.setLayout(self._row)
        self.setMaximumHeight(theme.px(_MOST))
        self.hide()

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
            self._row.removeWidget(chart)
            chart.deleteLater()
        self.charts = {name: OverlayChart(tr(name)) for name in curves}
        for name, chart in self.charts.items():
            chart.setToolTip(tr(name))
            chart.setMinimumSize(theme.px(_WIDTH), theme.px(_LEAST))
            self._row.addWidget(chart)
