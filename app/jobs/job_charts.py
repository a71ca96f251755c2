"""Draw the utilisation and the memory of a job's devices while it runs."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from PySide6.QtCore import QEvent, QSize
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.chart_card import ChartCard
from gpudeck.app.charts.chart_model import ChartModel, CurrentValue, chart_models, scale, title
from gpudeck.app.charts.chart_source import ChartContents
from gpudeck.app.charts.history import SECONDS
from gpudeck.app.charts.job_usage import FIELDS
from gpudeck.app.charts.scales import round_up
from gpudeck.app.charts.series import Floats, decimate
from gpudeck.app.format.values import clock, duration
from gpudeck.app.language.texts import tr, tr_decimal, tr_noop
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import NO_LIMIT, Stretch, column, grid_layout, label, set_text
from gpudeck.scheduler.protocol.jobs import Job, Queued

SHOWN = (*FIELDS, "temp", "power")
"""The fields that have charts; a job may have a share of FIELDS."""
_WIDTH, _LOWEST, _ROOMY, _HIGHEST = 228, 92, 160, 190
"""Pixels of the width of a chart, and of its height at least, with room, and at most."""


class JobCharts(QWidget):
    """Show as many charts as have room; hidden while there is nothing to draw."""

    def __init__(self) -> None:
        super().__init__()
        self.cards = {field: ChartCard(title(field)) for field in SHOWN}
        self.span = label(size="small", meaning="muted", wrap=True)
        self._grid = grid_layout()
        for made in self.cards.values():
            made.frame.setMaximumHeight(theme.px(_HIGHEST))
            self._grid.addWidget(made.frame)
        self.setLayout(column(self.span, self._grid, Stretch(), spacing=theme.XS))
        self._across, self._filling = 0, False
        self.arrange(1)
        self._recolor()

    def arrange(self, across: int, *, filling: bool = False) -> None:
        """Put this number of charts side by side, as wide as usual or filling all the width."""
        if (across, filling) == (self._across, self._filling):
            return
        self._across, self._filling = across, filling
        width = across * (theme.px(_WIDTH) + theme.S) - theme.S
        self.setMinimumWidth(1 if filling else width)
        self.setMaximumWidth(NO_LIMIT if filling else width)
        for at, made in enumerate(self.cards.values()):
            self._grid.removeWidget(made.frame)
            self._grid.addWidget(made.frame, *divmod(at, across))
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    @property
    def full_height(self) -> int:
        """Return the pixels of height in which all charts have room."""
        lines = -(-len(self.cards) // self._across)
        return self.span.sizeHint().height() + lines * (theme.px(_ROOMY) + theme.S)

    def sizeHint(self) -> QSize:
        return QSize(self.width(), 2 * theme.px(_LOWEST))

    def minimumSizeHint(self) -> QSize:
        return QSize(self.minimumWidth(), theme.px(_LOWEST))

    def _fit(self) -> None:
        """Leave out the charts that have no room, the last ones first."""
        room = self.height() - self.span.sizeHint().height()
        lines = max(room // (theme.px(_LOWEST) + theme.S), 1)
        for at, made in enumerate(self.cards.values()):
            made.frame.setVisible(at < lines * self._across)

    def show_job(self, job: Job, state: State) -> None:
        """Draw the charts of a job."""
        snapshot = state.snapshot
        # a chart that was never shown has no width yet
        shown = [card.view.pixels for card in self.cards.values() if not card.frame.isHidden()]
        made = job_charts(job, state, min(shown))
        self.setVisible(bool(made))
        if snapshot is None:
            return
        palette, devices = theme.tokens().series, [s.device.id for s in snapshot.devices]
        held = [device for device in devices if made and device in made[0].series]
        # a device alone has the first colour, as the second one looks like an alert
        numbered = held if len(held) == 1 else devices
        colors = {device: palette[i % len(palette)] for i, device in enumerate(numbered)}
        colors |= {device + OWN: theme.tokens().text for device in list(colors)}
        set_text(self.span, _span(job, snapshot.time))
        for one in made:
            here = {name: color for name, color in colors.items() if name in one.series}
            card = self.cards[one.chart.field]
            if card.frame.isHidden():  # there is no room for it
                continue
            card.show_chart(one.chart, here)
            card.show_contents(one.chart, one.limits, ChartContents(one.series), here)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()
        super().changeEvent(event)

    def _recolor(self) -> None:
        for made in self.cards.values():
            made.view.recolor()


_OWN_HELP = tr_noop(
    "own: what the job's processes alone use, if the driver reports it for each process"
)
OWN = "/job"
"""The ending of the name of a curve of the job's own usage."""


@dataclass(frozen=True)
class JobChart:
    """Hold one chart of a job."""

    chart: ChartModel
    limits: tuple[float, float]
    """Both ends of the time axis, in seconds since the epoch."""
    series: dict[str, tuple[Floats, Floats]]
    """Times (s) and values (the chart's unit), [n] each, by device id, or that with OWN."""


def job_charts(job: Job, state: State, pixels: int) -> tuple[JobChart, ...]:
    """Return a chart for each of SHOWN, or none if the job held no device in the known time.

    Args:
        pixels: The approximate number of points.
    """
    snapshot, began = state.snapshot, job.started
    held = () if isinstance(job.state, Queued) else job.state.devices
    if snapshot is None or began is None or not held:
        return ()
    end = job.ended or snapshot.time
    start = max(began, snapshot.time - SECONDS)
    if end <= start:
        return ()
    shown = msgspec.structs.replace(
        snapshot, devices=tuple(s for s in snapshot.devices if s.device.id in held)
    )
    made = {
        chart.field: chart if job.active else msgspec.structs.replace(chart, values=())
        for chart in chart_models(shown)
    }
    series: dict[str, dict[str, tuple[Floats, Floats]]] = {field: {} for field in SHOWN}
    width = round_up((end - start) / pixels * 2)
    for device in (s.device.id for s in shown.devices):
        times, values = state.history.window(device, SHOWN, start, end, width)
        own = state.job_usage.window(job.id, device, start, end)
        for i, field in enumerate(SHOWN):
            series[field][device] = times, values[i] / scale(field)
            if field in FIELDS and own is not None and not np.isnan(own[1][i]).all():
                at, thinned = decimate(own[0], own[1][i : i + 1], width)
                series[field][device + OWN] = at, thinned[0] / scale(field)
                made[field] = _with_own(made[field], device, own[1][i][-1] / scale(field))
    if all(not len(times) for times, _ in series[FIELDS[0]].values()):
        return ()
    return tuple(JobChart(made[field], (start, end), series[field]) for field in SHOWN)


def _span(job: Job, now: float) -> str:
    """Return when a job began and ended, and how long it ran."""
    began, end = job.started, job.ended
    if began is None:
        return ""
    length = duration((end or now) - began)
    if end is None:
        return tr("{begin} to now · {time}", begin=clock(began, now), time=length)
    return tr(
        "{begin} to {end} · {time}", begin=clock(began, now), end=clock(end, now), time=length
    )


def _with_own(chart: ChartModel, device: str, value: float) -> ChartModel:
    """Return the chart with the job's own current value beside the value of its device."""
    number = tr_decimal(f"{value:.1f}") if chart.unit == "GiB" else f"{value:.0f}"
    text = "" if np.isnan(value) else tr("own {value}", value=number)
    values = (*chart.values, CurrentValue(device + OWN, "", text)) if chart.values else ()
    return msgspec.structs.replace(
        chart, values=values, tooltip=f"{chart.tooltip}\n{tr(_OWN_HELP)}"
    )
