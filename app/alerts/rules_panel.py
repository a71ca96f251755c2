"""Set the alerts beside the values that they watch: two charts, and a list of the other rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from PySide6.QtWidgets import QWidget

from gpudeck.app.alerts.threshold_charts import CHARTED, SPAN, active_spans, threshold_contents
from gpudeck.app.charts.threshold_chart import ThresholdChart
from gpudeck.app.charts.thresholds import ChartThreshold, describe, moved, stepped
from gpudeck.app.language.texts import tr
from gpudeck.app.link.link import Link
from gpudeck.app.settings.form import SETTINGS, text_of
from gpudeck.app.settings.setting_row import SettingRow
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, card, column, grid_layout, label, row
from gpudeck.scheduler.protocol.snapshot import Alert
from gpudeck.scheduler.verbs.control import Configure

_LISTED = (
    "alert_slowdown",
    "alert_power_cap",
    "alert_errors",
    "alert_corrected",
    "alert_idle_job",
    "alert_stuck_job",
)
"""The thresholds of rules that watch no value with a chart."""
Form = Literal["tabs", "row", "column"]
"""Either the charts or the other rules; all side by side; or all one below the other."""
_HEIGHTS: dict[Form, int] = {"tabs": 170, "row": 260, "column": 340}
"""The most pixels of height of a chart: a higher one would be empty."""


class RulesPanel(QWidget):
    """Show and change the thresholds of all alerts."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._alerts: tuple[Alert, ...] = ()
        self._device = ""
        self._known: dict[str, ChartThreshold] = {}
        self.charts = {
            field: ThresholdChart(tr(title), f"{SPAN[0] / 60:.0f} min")
            for field, title in CHARTED.items()
        }
        for field, chart in self.charts.items():
            chart.dragged.connect(lambda level, done, f=field: self._drag(f, level, done))
            chart.stepped.connect(lambda steps, f=field: self._step(f, steps))
        settings = {setting.name: setting for setting in SETTINGS}
        self.rows = {name: SettingRow(settings[name], brief=True) for name in _LISTED}
        for name, made in self.rows.items():
            made.entered.connect(lambda text, n=name: self._enter(n, text))
        listed = column(
            label(tr("Other rules"), strong=True),
            *self.rows.values(),
            Stretch(),
            spacing=theme.XS,
            margins=(theme.L, theme.M, theme.L, theme.M),
        )
        self.others = card(listed)
        self.tabs = [
            button(text, partial(self._choose_tab, at), kind="quiet", checkable=True)
            for at, text in enumerate((tr("Thresholds"), tr("Other rules")))
        ]
        self._bar = QWidget()
        self._bar.setLayout(row(*self.tabs, Stretch(), spacing=theme.XS))
        self._grid = grid_layout(self, theme.M, theme.M)
        self._grid.addWidget(self._bar, 0, 0, 1, 2)
        self._form: Form | None = None
        self._tab = 0
        self.arrange("row")

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
                chart.show_threshold(contents.top, tr("No alert"))
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

    def arrange(self, form: Form) -> None:
        """Place the charts and the list of the other rules."""
        if form == self._form:
            return
        self._form = form
        places = ((1, 0), (2, 0)) if form == "column" else ((1, 0), (1, 1))
        for chart, place in zip(self.charts.values(), places, strict=True):
            self._grid.addWidget(chart, *place)
            chart.setMaximumHeight(theme.px(_HEIGHTS[form]))
        last = {"tabs": (1, 0, 1, 2), "row": (1, 2, 1, 1), "column": (3, 0, 1, 1)}[form]
        self._grid.addWidget(self.others, *last)
        columns = {"tabs": 2, "row": 3, "column": 1}[form]
        for at in range(3):
            self._grid.setColumnStretch(at, int(at < columns))
        for at in range(1, 5):
            self._grid.setRowStretch(at, int(form == "column" and at == 4))
        self._choose_tab(self._tab)

    def _choose_tab(self, tab: int) -> None:
        """Show the charts (0) or the other rules (1), where there is no room for both."""
        self._tab, both = tab, self._form != "tabs"
        self._bar.setVisible(not both)
        for at, made in enumerate(self.tabs):
            made.setChecked(at == tab)
        for chart in self.charts.values():
            chart.setVisible(both or tab == 0)
        self.others.setVisible(both or tab == 1)
