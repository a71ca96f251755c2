"""Show the log of a job, the curves that it printed, or the charts of its devices."""

from __future__ import annotations

from PySide6.QtWidgets import QStackedWidget, QWidget

from gpudeck.app.charts.curve_strip import CurveStrip
from gpudeck.app.jobs.job_charts import JobCharts
from gpudeck.app.jobs.log_view import LogView
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets.controls import Stretch, button, column, row
from gpudeck.app.widgets.segments import Segments


class JobViews(QWidget):
    """Show one view of a job; the user chooses which one, where there are several."""

    def __init__(self, output: LogView, charts: JobCharts) -> None:
        super().__init__()
        self.output, self.charts, self.curves = output, charts, CurveStrip()
        self._wanted: QWidget | None = None
        """The view that the user chose last."""
        self.charts_room, self._curves_room = QWidget(), QWidget()
        self.charts_room.setLayout(column())
        self._curves_room.setLayout(column(Stretch(self.curves, 1000), Stretch()))
        self._tabs = {
            self._curves_room: button(tr("Curves"), tooltip=tr("The values that the job printed")),
            self.charts_room: button(tr("GPU"), tooltip=tr("How the job used its devices")),
            output: button(tr("Log"), tooltip=tr("What the job printed")),
        }
        self._stack = QStackedWidget()
        for view, tab in self._tabs.items():
            self._stack.addWidget(view)
            tab.clicked.connect(lambda _, v=view: self.choose(v))
        self._bar = QWidget()
        self._bar.setLayout(row(Segments(tr("View"), *self._tabs.values()), Stretch()))
        self.setLayout(column(self._bar, Stretch(self._stack)))

    def take_charts(self) -> None:
        """Show the charts of the devices here, as one of the views."""
        layout = self.charts_room.layout()
        assert layout is not None
        layout.addWidget(self.charts)

    def choose(self, view: QWidget) -> None:
        """Show a view, also of the next jobs that have it."""
        self._wanted = view
        self.fit(prefer_log=True)

    def fit(self, *, prefer_log: bool) -> None:
        """Offer the views that have something to show.

        Args:
            prefer_log: Show the log before the charts where the user chose nothing.
        """
        there = {
            self._curves_room: bool(self.curves.charts),
            self.charts_room: self.charts.parent() is self.charts_room
            and not self.charts.isHidden(),
            self.output: True,
        }
        order = (self._curves_room, self.output if prefer_log else self.charts_room, self.output)
        shown = next(view for view in order if there[view])
        if self._wanted is not None and there[self._wanted]:
            shown = self._wanted
        for view, tab in self._tabs.items():
            tab.setVisible(there[view])
            tab.setChecked(view is shown)
        self._bar.setVisible(sum(there.values()) > 1)
        self._stack.setCurrentWidget(shown)

    def show_log(self) -> None:
        """Show the log alone, as wanted by somebody who searches in it or enlarges it."""
        self.choose(self.output)
