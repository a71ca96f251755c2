"""Set the alerts beside the values that they watch: two charts, and a list of the other rules."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from app.alerts.threshold_charts import CHARTED, SPAN, active_spans, threshold_contents
from app.charts.threshold_chart import ThresholdChart
from app.charts.thresholds import ChartThreshold, describe, moved, stepped
from app.link.link import Link
from app.settings.form import SETTINGS, text_of
from app.settings.setting_row import SettingRow
from app.state import State
from app.widgets import theme
from app.widgets.controls import Stretch, card, column, label
from scheduler.protocol.snapshot import Alert
from scheduler.verbs.control import Configure

_LISTED = (
    "alert_slowdown",
    "alert_power_cap",
    "alert_errors",
    "alert_corrected",
    "alert_idle_job",
    "alert_stuck_job",
)
"""The thresholds of rules that watch no value with a chart."""
_WIDE = 980
"""The least width of the panel at which everything is side by side."""
_WIDEST = 1700
"""The least width at which the charts stand one below the other, beside the list."""


class RulesPanel(QWidget):
    """Show and change the thresholds of all alerts."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._alerts: tuple[Alert, ...] = ()
        self._device = ""
        self._known: dict[str, ChartThreshold] = {}
        self.charts = {
            field: ThresholdChart(title, f"{SPAN[0] / 60:.0f} min")
            for field, title in CHARTED.items()
        }
        for field, chart in self.charts.items():
            chart.dragged.connect(lambda level, done, f=field: self._drag(f, level, done))
            chart.stepped.connect(lambda steps, f=field: self._step(f, steps))
        settings = {setting.name: setting for setting in SETTINGS}
        self.rows = {name: SettingRow(settings[name], brief=True) for name in _LISTED}
        for name, made in self.rows.items():
            made.entered.connect(lambda text, n=name: self._enter(n, text))
        listed = column(label("Other rules", strong=True), *self.rows.values(), Stretch())
        listed.setSpacing(theme.XS)
        listed.setContentsMargins(theme.L, theme.M, theme.L, theme.M)
        self.others = card(listed)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(theme.M)
        self._room = -1
        self._arrange(1)

    def show_device(self, device: str) -> None:
        """Let the curve of a device stand out; of the one with the highest value if it is empty."""
        if device != self._device:
            self.refresh(self._alerts, device)

    def refresh(self, alerts: Sequence[Alert], device: str) -> None:
        """Show the present values and thresholds, and when the alerts of the device were active."""
        self._alerts, self._device = tuple(alerts), device
        snapshot = self._state.snapshot
        if snapshot is None:
            return
        for field, chart in self.charts.items():
            contents = threshold_contents(field, snapshot, self._state.history, device)
            chart.show_spans(active_spans(field, contents.device, alerts, snapshot.time))
            chart.show_values(contents.lines, contents.top, contents.value)
            known = contents.threshold
            if known is None:
                self._known.pop(field, None)
                chart.show_threshold(None, contents.reason)
                continue
            self._known[field] = known
            if known.level is None:
                chart.show_threshold(contents.top, "No alert")
            else:
                chart.show_threshold(known.level, describe(known, known.level))
        for made in self.rows.values():
            made.show_text(text_of(snapshot.settings, made.setting))

    def _drag(self, field: str, level: float, done: bool) -> None:
        if (known := self._known.get(field)) is not None:
            self.charts[field].show_caption(describe(known, level))
            if done:
                self._send(moved(known, level))

    def _step(self, field: str, steps: int) -> None:
        if (known := self._known.get(field)) is not None:
            self._send(stepped(known, steps))

    def _send(self, request: Configure) -> None:
        self._link.send(self, request)

    def _enter(self, name: str, text: str) -> None:
        made = self.rows[name]
        made.submit(text, self._state, self, self._link, lambda _: made.clear_error())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange(sum(self.width() >= theme.px(width) for width in (_WIDE, _WIDEST)))

    def _arrange(self, room: int) -> None:
        """Place the charts and the list.

        Args:
            room: 0 puts the list below the charts, 1 beside them, and 2 also puts one chart below
                the other, as charts over time are better wide than high.
        """
        if room == self._room:
            return
        self._room = room
        places = ((0, 0), (1, 0)) if room == 2 else ((0, 0), (0, 1))
        for chart, place in zip(self.charts.values(), places, strict=True):
            self._grid.addWidget(chart, *place)
        last = {0: (1, 0, 1, 2), 1: (0, 2, 1, 1), 2: (0, 1, 1, 1)}[room]
        self._grid.addWidget(self.others, *last, Qt.AlignmentFlag.AlignTop)
        for at, stretch in enumerate({0: (1, 1, 0), 1: (1, 1, 1), 2: (3, 1, 0)}[room]):
            self._grid.setColumnStretch(at, stretch)
        for at, stretch in enumerate((1, 1 if room == 2 else 0)):
            self._grid.setRowStretch(at, stretch)
