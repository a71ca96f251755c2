"""The dashboard: five charts over one time axis."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from app.charts.chart_card import AXIS_WIDTH, EDGE_WIDTH, ChartCard
from app.charts.chart_model import Chart, charts, scale, title
from app.charts.chart_source import ChartContents, ChartSource, value_at
from app.charts.past_curves import PIXELS_A_BIN, LoadPast, Page
from app.charts.refresh_rate import Pace, Turns, stepped
from app.charts.scales import round_up
from app.dashboard.job_spans import Span, spans
from app.dashboard.jobs_band import JobSpans
from app.dashboard.legend import Legend
from app.dashboard.time_axis import TimeAxis
from app.dashboard.time_bar import TimeBar
from app.dashboard.timeline import job_spans, marks
from app.dashboard.timeline_bands import Marks, color
from app.format.values import NOT_AVAILABLE, clock, device_label, format_field
from app.link.link import Link
from app.link.state import State
from app.strip.fleet_model import MANY
from app.widgets import theme
from app.widgets.controls import ask_save_path, column
from scheduler.protocol.fields import HEADLINE
from scheduler.protocol.snapshot import Snapshot

_PLACES = {
    "util": (2, 0, 1, 2),
    "mem_used": (3, 0, 1, 1),
    "tflops": (3, 1, 1, 1),
    "temp": (4, 0, 1, 1),
    "power": (4, 1, 1, 1),
}
_REACH = 2.5
"""Buckets beside the cursor that still count as at it."""
_FORMATS = "CSV (*.csv);;Parquet (*.parquet);;Picture (*.png)"
_MOST_JOBS, _LISTED = 1000, 30
_AROUND = 0.05
"""Of a job's time, shown before and after it."""


class DashboardPage(QWidget):
    """Drag or ← → to move in time, wheel or + - to zoom, L to follow the newest reading again.

    C sets a cursor, which Shift with ← → moves; B keeps the stretch for comparison; J and Shift+J go from job to job.
    """

    job_chosen = Signal(int)
    """A job's bar above the charts was clicked."""
    said = Signal(str)
    """What became of an export."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self.span = TimeAxis()
        self._pace, self._turns = Pace(), Turns()
        self._only: tuple[str, ...] = ()
        self.charted = ChartSource(state.history)
        self.at: float | None = None
        """Where on the time axis, from 0 to 1."""
        self.beside: float | None = None
        """Begin of the stretch that is kept for comparison."""
        self._jobs: dict[int, Span] = {}
        """Those that were seen on the time axis, by number, the first to start first."""
        self.legend = Legend()
        self.legend.changed.connect(self.refresh)
        self.bar = TimeBar()
        self.where, self.spans, self.live = self.bar.where, self.bar.spans, self.bar.live
        self.bar.chosen.connect(self.show_last)
        self.bar.followed.connect(self.follow)
        self.bar.compared.connect(self.compare)
        self.bar.job_wanted.connect(self.show_job)
        self.bar.exported.connect(self.export)
        self.jobs, self.marks = JobSpans(AXIS_WIDTH, EDGE_WIDTH), Marks(AXIS_WIDTH, EDGE_WIDTH)
        self.jobs.chosen.connect(self.job_chosen)
        above = QWidget()
        above.setLayout(column(self.jobs, self.marks, spacing=1))
        self.charts = {
            field: ChartCard(title(field), above if field == "util" else None) for field in HEADLINE
        }
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(theme.S)
        grid.addWidget(self.legend, 0, 0, 1, 2, Qt.AlignmentFlag.AlignLeft)
        grid.addWidget(self.bar, 1, 0, 1, 2)
        for field, made in self.charts.items():
            grid.addWidget(made.frame, *_PLACES[field])
            made.view.box.panned.connect(self.pan)
            made.view.box.zoomed.connect(self.zoom)
            made.view.box.hovered.connect(self.point)
        for line in (2, 3, 4):
            grid.setRowStretch(line, 1)
        for side in (0, 1):
            grid.setColumnStretch(side, 1)
        self._recolor()

    def refresh(self) -> None:
        """Draw what the state has now, and ask for what it has not."""
        snapshot, known = self._seen(), self._state.history.span()
        if snapshot is None:
            return
        if known is not None:
            self.span.extend(*known)
        colors = {
            s.device.id: theme.tokens().series[i % len(theme.tokens().series)]
            for i, s in enumerate(snapshot.devices)
        }
        self.legend.show_devices(
            {s.device.id: device_label(s.device) for s in snapshot.devices}, colors
        )
        self.legend.setVisible(bool(self.legend.chips))
        hidden = self.legend.hidden_devices()
        shown = {device: color for device, color in colors.items() if device not in hidden}
        for request in self.charted.wants(
            tuple(colors), self.span.limits, self.beside, self.charts["util"].view.pixels
        ):
            self._load_past(request)
        self._draw(snapshot, shown)

    def _load_past(self, request: LoadPast) -> None:
        self._link.send(
            self,
            request,
            self._take_past,
            lambda _: self.charted.refused(request),
            background=True,
        )

    def _take_past(self, page: Page) -> None:
        self.charted.take(page)
        if self.isVisible():
            self.refresh()

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
        return msgspec.structs.replace(
            snapshot, devices=tuple(known[d] for d in self._only if d in known)
        )

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

    def show_stretch(self, start: float, end: float) -> None:
        """Show the time from `start` to `end`, and a little around it."""
        margin = _AROUND * (end - start)
        self.span.show(start - margin, end + margin)
        self.refresh()

    def show_job(self, number: int) -> None:
        """Show the time of a job that is known to the time bar."""
        if (found := self._jobs.get(number)) is not None:
            self.show_stretch(found.start, found.end)

    def compare(self, wanted: bool) -> None:
        """Keep the stretch that is shown under whatever is shown next, both from their begin on; or show one alone again."""
        self.beside = self.span.limits[0] if wanted else None
        self.bar.compare.setChecked(wanted)
        self.refresh()

    def point(self, moment: float | None) -> None:
        """Set the cursor to a moment; None: away."""
        start, end = self.span.limits
        self.at = None if moment is None else min(max((moment - start) / (end - start), 0.0), 1.0)
        self.refresh()

    def export(self) -> None:
        """Ask for a file's name; what is shown is written to it, as the name's ending says."""
        ask_save_path(self, "Export what is shown", "gpudeck.csv", _FORMATS, self.save)

    def save(self, file: str) -> None:
        """Write the stretch that is shown: a picture of it, or the values of the devices that are not hidden."""
        snapshot = self._seen()
        if snapshot is None:
            return
        if file.lower().endswith(".png"):
            done = self.grab().save(file)
            self.said.emit(
                f"written to {file}"
                if done
                else f"cannot write {file}. Choose a folder you can write to."
            )
            return
        hidden = self.legend.hidden_devices()
        shown = tuple(s.device for s in snapshot.devices if s.device.id not in hidden)
        from app.dashboard.history_export import ExportHistory  # rarely needed

        self._link.send(
            self,
            ExportHistory(shown, *self.span.limits, file),
            lambda _: self.said.emit(f"written to {file}"),
            self.said.emit,
        )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        start, end = self.span.limits
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        match event.key():
            case Qt.Key.Key_Left | Qt.Key.Key_Right if shift:
                step = -0.01 if event.key() == Qt.Key.Key_Left else 0.01
                at = 0.5 if self.at is None else self.at + step
                self.point(start + at * (end - start))
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
            case Qt.Key.Key_C | Qt.Key.Key_Escape:
                self.point(
                    (start + end) / 2 if event.key() == Qt.Key.Key_C and self.at is None else None
                )
            case Qt.Key.Key_B:
                self.compare(self.beside is None)
            case Qt.Key.Key_J:
                self._next_job(-1 if shift else 1)
            case Qt.Key.Key_E if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
                self.export()
            case _:
                super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()
            self.refresh()
        super().changeEvent(event)

    def _recolor(self) -> None:
        for made in self.charts.values():
            made.view.recolor()

    def _draw(self, snapshot: Snapshot, colors: dict[str, str]) -> None:
        widths, limits = (
            {field: made.view.pixels for field, made in self.charts.items()},
            self.span.limits,
        )
        paced = (
            self.span.live
            and self.at is None
            and self.beside is None
            and self.charted.recent(limits)
        )
        if paced:
            limits = stepped(
                limits, round_up(self.span.seconds / min(widths.values()) * PIXELS_A_BIN)
            )
        told = self.charted.annotations(limits)
        happened = marks(told, colors, *limits)
        moments = [
            (mark.start, color(mark)) for mark in happened if mark.line and mark.start >= limits[0]
        ]
        look = (
            (
                tuple(colors.items()),
                self.span.seconds,
                *widths.values(),
                self._state.history.loads,
                tuple(moments),
            )
            if paced
            else object()
        )
        due = self._pace.due(tuple(self.charts), limits, look, snapshot.settings.telemetry_hz)
        drawn = self.charted.draw(due, tuple(colors), limits, self.beside, widths)
        self._turns.begin(snapshot.settings.telemetry_hz)
        renewed = [
            field
            for at, field in enumerate(self.charts)
            if not paced or field in due or self._turns.due(at)
        ]
        for chart in charts(snapshot, renewed):
            made = self.charts[chart.field]
            made.show_chart(chart, colors)
            if chart.field in due:
                made.show_series(chart, limits, drawn[chart.field], colors, moments)
                self._show_cursor(made, chart, drawn[chart.field], colors)
        own = spans(snapshot, colors, *limits)
        found = own if self.charted.recent(limits) else job_spans(told, tuple(colors), *limits)
        self.jobs.show_spans(found, limits, colors)
        self.marks.show_marks(happened, limits)
        self._jobs |= {s.job: s for s in (*found, *spans(snapshot, colors, 0.0, snapshot.time))}
        self._jobs = {
            s.job: s for s in sorted(self._jobs.values(), key=lambda s: s.start)[-_MOST_JOBS:]
        }
        self.bar.show_jobs(tuple(self._jobs.values())[-_LISTED:], snapshot.time)
        self.bar.show_span(self.span, self._words(snapshot.time))

    def _show_cursor(
        self, made: ChartCard, chart: Chart, drawn: ChartContents, colors: dict[str, str]
    ) -> None:
        """The values where the cursor stands."""
        start, end = self.span.limits
        if self.at is None:
            made.show_cursor(None, [], "")
            return
        moment, one = start + self.at * (end - start), len(chart.values) == 1
        texts = []
        for device, (times, values) in drawn.lines.items():
            found = value_at(times, values, moment, _REACH * drawn.step)
            text = (
                NOT_AVAILABLE
                if found is None
                else format_field(chart.field, found * scale(chart.field)).text
            )
            texts.append((text, "" if one else colors[device]))
        made.show_cursor(moment, texts, chart.unit)

    def _words(self, now: float) -> str:
        """What is to be said of the stretch that is shown."""
        start, end = self.span.limits
        said = [] if self.at is None else [f"at {clock(start + self.at * (end - start), now)}"]
        said += [] if self.beside is None else [f"pale: from {clock(self.beside, now)}"]
        said += [] if self.span.live else ["looking back; L follows again"]
        return " · ".join(said)

    def _next_job(self, step: int) -> None:
        """The next job to start after the middle of what is shown, or the one before."""
        start, end = self.span.limits
        middle = (start + end) / 2
        found = sorted(((s.start + s.end) / 2, s.start, s.end) for s in self._jobs.values())
        there = [job for job in found if (job[0] - middle) * step > _AROUND * 0.1 * (end - start)]
        if there:
            _, first, last = there[0] if step > 0 else there[-1]
            self.show_stretch(first, last)
