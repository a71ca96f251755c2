"""The dashboard: five charts over one time axis."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QWidget

from app import theme
from app.models.axis import round_up
from app.models.charts import charts, scale, title
from app.models.fleet import MANY
from app.models.format import device_label
from app.models.history import SECONDS
from app.models.spans import spans
from app.models.state import State
from app.models.timespan import TimeSpan
from app.views.chart import AXIS_WIDTH, EDGE_WIDTH, ChartCard, Series
from app.views.job_spans import JobSpans
from app.views.legend import Legend
from app.views.widgets import button, label, row, set_text
from scheduler.devices.fields import HEADLINE
from scheduler.telemetry.snapshot import Snapshot

_PIXELS_A_BIN = 2  # a bin draws two points
_SPANS = (("1 min", 60.0), ("5 min", 300.0), ("10 min", SECONDS))
_PLACES = {"util": (1, 0, 1, 2), "mem_used": (2, 0, 1, 1), "tflops": (2, 1, 1, 1), "temp": (3, 0, 1, 1), "power": (3, 1, 1, 1)}


class Dashboard(QWidget):
    """Drag or ← → to move in time, wheel or + - to zoom, L to follow the newest reading again."""

    job_chosen = Signal(int)
    """A job's bar above the charts was clicked."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.span = TimeSpan()
        self._only: tuple[str, ...] = ()
        self.legend = Legend()
        self.legend.changed.connect(self.refresh)
        self.where = label(size="small", meaning="muted")
        self.jobs = JobSpans(AXIS_WIDTH, EDGE_WIDTH)
        self.jobs.chosen.connect(self.job_chosen)
        self.charts = {field: ChartCard(title(field), self.jobs if field == "util" else None) for field in HEADLINE}
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(theme.S)
        grid.addLayout(self._bar(), 0, 0, 1, 2)
        for field, made in self.charts.items():
            grid.addWidget(made.frame, *_PLACES[field])
            made.view.box.panned.connect(self.pan)
            made.view.box.zoomed.connect(self.zoom)
        for line in (1, 2, 3):
            grid.setRowStretch(line, 1)
        for side in (0, 1):
            grid.setColumnStretch(side, 1)
        self._recolor()

    def refresh(self) -> None:
        """Draw what the state has now."""
        snapshot, known = self._seen(), self._state.history.span()
        if snapshot is None:
            return
        if known is not None:
            self.span.extend(*known)
        colors = {s.device.id: theme.tokens().series[i % len(theme.tokens().series)] for i, s in enumerate(snapshot.devices)}
        self.legend.show_devices({s.device.id: device_label(s.device) for s in snapshot.devices}, colors)
        hidden = self.legend.hidden_devices()
        shown = {device: color for device, color in colors.items() if device not in hidden}
        series = self._series(tuple(shown))
        for chart in charts(snapshot):
            self.charts[chart.field].show_chart(chart, shown)
            self.charts[chart.field].show_series(chart, self.span.limits, series[chart.field], shown)
        self.jobs.show_spans(spans(snapshot, shown, *self.span.limits), self.span.limits, shown)
        set_text(self.where, "" if self.span.live else "looking back; L follows again")
        self.live.setChecked(self.span.live)
        for made, (_, seconds) in zip(self.spans, _SPANS, strict=True):
            made.setChecked(self.span.seconds == seconds)

    def show_only(self, devices: tuple[str, ...]) -> None:
        """Curves of these alone, of many: more could not be told apart."""
        self._only = devices
        self.refresh()

    def _seen(self) -> Snapshot | None:
        """The newest snapshot, with the devices whose curves are shown."""
        snapshot = self._state.snapshot
        if snapshot is None or len(snapshot.devices) <= MANY:
            return snapshot
        known = {state.device.id: state for state in snapshot.devices}
        return msgspec.structs.replace(snapshot, devices=tuple(known[d] for d in self._only if d in known))

    def pan(self, seconds: float) -> None:
        self.span.pan(seconds)
        self.refresh()

    def zoom(self, factor: float, at: float) -> None:
        self.span.zoom(factor, at)
        self.refresh()

    def follow(self) -> None:
        self.span.go_live()
        self.refresh()

    def show_last(self, seconds: float) -> None:
        self.span.go_live(seconds)
        self.refresh()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        start, end = self.span.limits
        match event.key():
            case Qt.Key.Key_Left:
                self.pan(-self.span.seconds / 10)
            case Qt.Key.Key_Right:
                self.pan(self.span.seconds / 10)
            case Qt.Key.Key_Plus | Qt.Key.Key_Equal:
                self.zoom(0.8, end if self.span.live else (start + end) / 2)
            case Qt.Key.Key_Minus:
                self.zoom(1.25, end if self.span.live else (start + end) / 2)
            case Qt.Key.Key_L | Qt.Key.Key_End:
                self.follow()
            case _:
                super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()
            self.refresh()
        super().changeEvent(event)

    def _bar(self) -> QHBoxLayout:
        """Legend on the left, the stretch of time on the right."""
        self.spans = [button(text, kind="quiet", tooltip=f"Show the last {text}", checkable=True) for text, _ in _SPANS]
        for made, (_, seconds) in zip(self.spans, _SPANS, strict=True):
            made.clicked.connect(lambda _=False, s=seconds: self.show_last(s))
        self.live = button("Live", kind="quiet", tooltip="Follow the newest reading (L)", checkable=True)
        self.live.clicked.connect(self.follow)
        bar = row(self.legend, self.where, *self.spans, self.live, spacing=theme.XS)
        bar.insertStretch(1, 1)
        return bar

    def _recolor(self) -> None:
        for made in self.charts.values():
            made.view.recolor()

    def _series(self, devices: tuple[str, ...]) -> dict[str, Series]:
        """For each field the curves of the devices. Charts of one width are decimated together."""
        start, end = self.span.limits
        found: dict[str, Series] = {field: {} for field in self.charts}
        widths = {field: made.view.pixels for field, made in self.charts.items()}
        for width in set(widths.values()):
            fields = [field for field in self.charts if widths[field] == width]
            bin_width = round_up(self.span.seconds / width * _PIXELS_A_BIN)
            for device in devices:
                times, values = self._state.history.window(device, fields, start, end, bin_width)
                for field, row_of in zip(fields, values, strict=True):
                    found[field][device] = times, row_of / scale(field)
        return found
