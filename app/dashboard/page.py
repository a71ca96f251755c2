"""Show a chart a quantity, all over one time axis."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec
from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.chart_card import ChartCard
from gpudeck.app.charts.chart_model import ChartModel, chart_models, scale, title
from gpudeck.app.charts.chart_source import ChartContents, ChartSource, Curve, value_at
from gpudeck.app.charts.chart_view import EDGE_WIDTH, axis_width
from gpudeck.app.charts.curves import ghost_colors
from gpudeck.app.charts.fleet_curves import PIXELS_A_BIN as FLEET_PIXELS_A_BIN
from gpudeck.app.charts.lanes import FROM as LANES_FROM
from gpudeck.app.charts.past_curves import PIXELS_A_BIN, LoadPast, PastCurves
from gpudeck.app.charts.refresh_rate import Limits, RedrawSchedule, StaggeredRefresh, stepped
from gpudeck.app.charts.scales import round_up
from gpudeck.app.charts.thresholds import describe, moved, threshold
from gpudeck.app.charts.value_line import lane_values_width
from gpudeck.app.dashboard.day import Day, LoadDay
from gpudeck.app.dashboard.day_card import DayCard
from gpudeck.app.dashboard.fleet_charts import FleetCharts
from gpudeck.app.dashboard.legend import Legend
from gpudeck.app.dashboard.time_axis import TimeAxis
from gpudeck.app.dashboard.time_bar import TimeBar
from gpudeck.app.dashboard.timeline import (
    EventMark,
    JobSpan,
    booking_spans,
    current_job_spans,
    event_marks,
    past_job_spans,
)
from gpudeck.app.dashboard.timeline_bands import EventBand, JobBand
from gpudeck.app.format.bookings import outlook
from gpudeck.app.format.values import (
    NOT_AVAILABLE,
    clock,
    device_label,
    format_field,
    shortest_label,
)
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.link.link import Link
from gpudeck.app.state import State
from gpudeck.app.strip.fleet_model import MANY
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import bind_actions
from gpudeck.app.widgets.controls import (
    Stretch,
    ask_save_path,
    card,
    column,
    elided,
    grid_layout,
    label,
    row,
    set_tooltip,
    show_if_any,
)
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.snapshot import Snapshot

_FIRST_LINE, _COLUMNS = 4, 2
"""The grid's line of the first chart, and the columns of charts."""
_FRONT_STRETCH, _STRETCH = 5, 3
"""How the height is shared between the chart with full lanes and each line of strips."""
_REACH = 2.5
"""Bins beside the cursor whose values still count as those at the cursor."""
_FORMATS = tr_noop(
    "CSV (*.csv);;Parquet (*.parquet);;Recording to replay anywhere (*.trace.gz);;Picture (*.png)"
)
_MOST_JOBS, _LISTED_JOBS = 1000, 30
_DAY_AFTER_S, _DAY_EVERY_S, _DAY_SHARE = 3.0, 300.0, 0.05
"""Seconds until the last 24 hours are loaded, after the first charts, and then between loads; less
than the latter while this share of the time that was read is less, so that a new day is true."""
_FOLDS_EVERY_S = 10.0
"""Seconds between two looks for data of charts that are not shown."""
_MARGIN = 0.05
"""Share of a job's time that is shown before and after it."""


class DashboardPage(QWidget):
    """Show the charts of all devices.

    Drag or press ← and → to move in time, turn the wheel or press + and - to zoom, press L to
    follow the newest reading. C sets a cursor, which Shift with ← and → moves. B keeps the curves
    for comparison. J and Shift+J go to the next and the previous job.
    """

    job_chosen = Signal(int)
    """Carries the job whose bar was clicked."""
    device_chosen = Signal(str)
    """Carries the device whose row of a heat map was clicked."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self.axis = TimeAxis()
        self._schedule, self._texts = RedrawSchedule(), StaggeredRefresh()
        self._charted: tuple[str, ...] = ()
        """The devices that have curves while there are many."""
        self.source = ChartSource(state.history)
        self._dragged = ""
        """The field whose alert is being dragged."""
        self._heat = False
        """There are so many devices that each chart is a heat map."""
        self.front = HEADLINE[0]
        """The value that has full lanes while those of several devices are strips."""
        self._strips = False
        """Each device has a lane in the chart of `front`, and a row of a heat map in the others."""
        self.cursor_share: float | None = None
        """The cursor's place on the time axis, 0 to 1."""
        self.compared: float | None = None
        """Begin of the stretch of time that is kept for comparison."""
        self._jobs: dict[int, JobSpan] = {}
        """The newest jobs that were on the time axis, in order of their start."""
        self._listed: object = None
        """What the list of jobs was made of."""
        self.legend = Legend()
        self.legend.changed.connect(self.refresh)
        self.bar = TimeBar()
        self.bar.chosen.connect(self.show_last)
        self.bar.followed.connect(self.follow)
        self.bar.compared.connect(self.compare)
        self.bar.job_chosen.connect(self.show_job)
        self.bar.exported.connect(self.export)
        self._make_bands()
        self.fleet = FleetCharts(self.source, self.charts)
        self.fleet.chosen.connect(self.device_chosen)
        self.day = DayCard()
        self._day_due = time.monotonic() + _DAY_AFTER_S
        self.folded = elided(size="small", meaning="muted")
        """Names the charts that are not shown, as they have no data."""
        self._shown: tuple[str, ...] = ()
        """The fields whose charts are shown."""
        self._placed_front = ""
        """The field whose chart has full lanes; empty while all charts are alike."""
        self._folded_span: object = None
        self._folds_due = 0.0
        """When charts that are not shown are looked at again, and the stretch of time they had."""
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._bind()
        self._lay_out()
        self._place_charts(HEADLINE)
        self._recolor()

    def _make_bands(self) -> None:
        self.jobs = JobBand(axis_width(), EDGE_WIDTH)
        self.jobs.chosen.connect(self.job_chosen)
        self.events = EventBand(axis_width(), EDGE_WIDTH)
        self._jobs_title = label(tr("Jobs"), strong=True)
        """Above rows with long names; others have the title beside them."""
        self.reserved = elided(size="small", meaning="muted")
        """Says which GPUs are reserved now and next: the axis ends at the present."""
        above = row(self._jobs_title, Stretch(self.reserved), spacing=theme.L)
        inner = column(above, self.jobs, spacing=2)
        self.gantt = card(inner)
        inner.setContentsMargins(theme.M, 6, theme.M, 6)
        self.gantt.hide()
        self.charts = {
            field: ChartCard(title(field), self.events if field == "util" else None)
            for field in HEADLINE
        }

    def _lay_out(self) -> None:
        grid = self._grid = grid_layout(self)
        grid.addWidget(FoldRow(self.legend, self.bar, (0, 1)), 1, 0, 1, _COLUMNS)
        grid.addWidget(self.day.frame, 0, 0, 1, _COLUMNS)
        grid.addWidget(self.gantt, 2, 0, 1, _COLUMNS)
        grid.addWidget(self.folded, 9, 0, 1, _COLUMNS)
        for field, chart in self.charts.items():
            chart.view.box.dragged.connect(
                lambda level, done, f=field: self.drag_threshold(f, level, done)
            )
            chart.view.box.panned.connect(self.pan)
            chart.view.box.zoomed.connect(self.zoom)
            chart.view.box.hovered.connect(self.point)
            chart.enlarge.clicked.connect(lambda _=False, f=field: self.bring_forward(f))
        for side in range(_COLUMNS):
            grid.setColumnStretch(side, 1)

    def refresh(self) -> None:
        """Draw what is known now, and load what is missing."""
        snapshot, known = self._charted_snapshot(), self._state.history.span()
        if snapshot is None:
            return
        if known is not None:
            self.axis.extend(*known)
        series = theme.tokens().series
        devices = [state.device for state in snapshot.devices]
        colors = {device.id: series[i % len(series)] for i, device in enumerate(devices)}
        labels = {device.id: device_label(device) for device in devices}
        many = self._heat = len(colors) > MANY
        self._strips = (
            LANES_FROM <= len(colors) <= MANY and self.focus is None and self.compared is None
        )
        self.bar.compare.setVisible(not many)
        if many and self.compared is not None:
            self.compare(False)
            return
        self.legend.show_devices({} if many else labels, colors)
        self.legend.setVisible(bool(self.legend.chips))
        pixels = self.charts["util"].view.pixels // (2 if many else 1)
        for request in self.source.next_requests(
            tuple(colors), self.axis.limits, self.compared, pixels
        ):
            self._load_past(request)
        if self.focus is not None or len(colors) >= LANES_FROM:
            colors = dict.fromkeys(colors, theme.tokens().accent)
        self._draw(snapshot, colors)
        if time.monotonic() >= self._day_due:
            self.load_day()

    def load_day(self) -> None:
        """Load the figures of the last 24 hours of all devices."""
        snapshot = self._state.snapshot
        self._day_due = time.monotonic() + _DAY_EVERY_S
        if snapshot is not None:
            devices = tuple(state.device for state in snapshot.devices)
            request = LoadDay(devices, snapshot.time, snapshot.settings.idle_util_percent)
            self._link.send(self, request, self._take_day, lambda _: None, background=True)

    def _take_day(self, day: Day) -> None:
        snapshot = self._state.snapshot
        if snapshot is not None:
            count = len(snapshot.devices)
            read_s = 3600 * day.hours / max(count, 1)
            wait = min(max(_DAY_SHARE * read_s, _DAY_AFTER_S), _DAY_EVERY_S)
            self._day_due = time.monotonic() + wait
            self.day.show_day(day, snapshot.settings, count, snapshot.time)

    @property
    def focus(self) -> str | None:
        """Return the device whose curves are in front of all others; None if all are equal."""
        return self.legend.focus

    def _place_charts(self, fields: tuple[str, ...]) -> None:
        """Show the charts of these fields: the first over the whole width, two beside each other.

        The others have no data; a line names them.
        """
        front = self.front if self._strips and self.front in fields else ""
        if (fields, front) == (self._shown, self._placed_front):
            return
        self._shown, self._placed_front = fields, front
        fields = tuple(sorted(fields, key=lambda field: field != front))  # all else keeps its order
        for line in range(len(self.charts)):
            self._grid.setRowStretch(_FIRST_LINE + line, 0)
        for chart in self.charts.values():
            self._grid.removeWidget(chart.frame)
        alone = 1 if front else len(fields) % _COLUMNS  # the first chart has a line of its own
        for at, field in enumerate(fields):
            line, side = divmod(at - alone, _COLUMNS) if at >= alone else (-1, 0)
            line += _FIRST_LINE + alone
            span = 1 if at >= alone else _COLUMNS
            self._grid.addWidget(self.charts[field].frame, line, side, 1, span)
            self._grid.setRowStretch(line, _FRONT_STRETCH if field == front else _STRETCH)
        for field, chart in self.charts.items():
            chart.frame.setParent(self)
            chart.frame.setVisible(field in fields)
            chart.enlarge.setVisible(bool(front) and field != front)

    def bring_forward(self, field: str) -> None:
        """Give a value the full lanes, and make strips of the others."""
        self.front = field
        self._schedule, self._folded_span = RedrawSchedule(), None
        self.refresh()

    def _bring_next_forward(self) -> None:
        at = self._shown.index(self.front) if self.front in self._shown else -1
        self.bring_forward(self._shown[(at + 1) % len(self._shown)])

    def _load_past(self, request: LoadPast) -> None:
        self._link.send(
            self,
            request,
            self._take_past,
            lambda _: self.source.fail(request),
            background=True,
        )

    def _take_past(self, curves: PastCurves) -> None:
        self.source.take(curves)
        if self.isVisible():
            self.refresh()

    def show_only(self, devices: tuple[str, ...]) -> None:
        """Show these of many devices only, in this order."""
        self._charted = devices
        self.refresh()

    def _charted_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot, with the devices that have curves."""
        snapshot = self._state.snapshot
        if snapshot is None or len(snapshot.devices) <= MANY:
            return snapshot
        known = {state.device.id: state for state in snapshot.devices}
        return msgspec.structs.replace(
            snapshot, devices=tuple(known[d] for d in self._charted if d in known)
        )

    def pan(self, seconds: float) -> None:
        """Move the time axis to the right."""
        self.axis.pan(seconds)
        self.refresh()

    def zoom(self, factor: float, at: float) -> None:
        """Show `factor` times as many seconds around the moment `at`."""
        self.axis.zoom(factor, at)
        self.refresh()

    def follow(self) -> None:
        """Follow the newest reading."""
        self.axis.go_live()
        self.refresh()

    def show_last(self, seconds: float) -> None:
        """Show the last seconds, and follow the newest reading."""
        self.axis.go_live(seconds)
        self.refresh()

    def show_time(self, start: float, end: float) -> None:
        """Show the time from `start` to `end`, and a little around it."""
        margin = _MARGIN * (end - start)
        self.axis.show(start - margin, end + margin)
        self.refresh()

    def show_job(self, number: int) -> None:
        """Show the time of a job that the time bar lists."""
        span = self._jobs.get(number)
        if span is not None:
            self.show_time(span.start, span.end)

    def compare(self, wanted: bool) -> None:
        """Keep the curves that are shown behind those of any other time, or remove them."""
        wanted = wanted and not self._heat  # colours of two times cannot be laid over each other
        self.compared = self.axis.limits[0] if wanted else None
        self.bar.compare.setChecked(wanted)
        self.refresh()

    def point(self, moment: float | None) -> None:
        """Set the cursor to a moment, or remove it."""
        start, end = self.axis.limits
        self.cursor_share = None
        if moment is not None:
            self.cursor_share = min(max((moment - start) / (end - start), 0.0), 1.0)
        self.refresh()

    def export(self) -> None:
        """Ask for a file, and save what is shown in the format of its name."""
        ask_save_path(self, tr("Export"), "gpudeck.csv", tr(_FORMATS), self.save)

    def save(self, file: str) -> None:
        """Save a picture of the page, or the values of the devices that are not hidden."""
        snapshot = self._charted_snapshot()
        if snapshot is None:
            return
        if file.lower().endswith(".png"):
            if self.grab().save(file):
                self._link.announce_file(tr("Picture"), file)
            else:
                text = tr("Cannot write {file}. Choose a folder that you can write to.", file=file)
                self._link.failed.emit(text)
            return
        from gpudeck.app.report.history_export import ExportHistory  # rarely needed

        devices = tuple(s.device for s in snapshot.devices if self.focus in (None, s.device.id))
        self._link.send(
            self,
            ExportHistory(devices, *self.axis.limits, file),
            lambda _: self._link.announce_file(tr("History"), file),
        )

    def _bind(self) -> None:
        bind_actions(
            self,
            {
                "time.live": self.follow,
                "time.in": lambda: self._zoom_by_key(0.8),
                "time.out": lambda: self._zoom_by_key(1.25),
                "time.cursor": self._toggle_cursor,
                "time.compare": lambda: self.compare(self.compared is None),
                "time.next": lambda: self._show_next_job(1),
                "time.previous": lambda: self._show_next_job(-1),
                "time.export": self.export,
                "time.value": self._bring_next_forward,
            },
        )

    def _zoom_by_key(self, factor: float) -> None:
        """Zoom around the present, or around the middle of another time."""
        start, end = self.axis.limits
        self.zoom(factor, end if self.axis.live else (start + end) / 2)

    def _toggle_cursor(self) -> None:
        start, end = self.axis.limits
        self.point((start + end) / 2 if self.cursor_share is None else None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.day.fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        start, end = self.axis.limits
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        match event.key():
            case Qt.Key.Key_Left | Qt.Key.Key_Right if shift:
                step = -0.01 if event.key() == Qt.Key.Key_Left else 0.01
                at = 0.5 if self.cursor_share is None else self.cursor_share + step
                self.point(start + at * (end - start))
            case Qt.Key.Key_Left:
                self.pan(-self.axis.seconds / 10)
            case Qt.Key.Key_Right:
                self.pan(self.axis.seconds / 10)
            case Qt.Key.Key_End:
                self.follow()
            case Qt.Key.Key_Escape if self.cursor_share is not None:
                self.point(None)
            case _:
                super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()
            self.refresh()
        super().changeEvent(event)

    def _recolor(self) -> None:
        for chart in self.charts.values():
            chart.view.recolor()

    def _draw(self, snapshot: Snapshot, colors: dict[str, str]) -> None:
        widths = self._widths()
        limits = self.axis.limits
        recent = self.source.recent(limits)
        alone = self.cursor_share is None and self.compared is None
        stepping = self.axis.live and alone and recent
        if stepping:
            pixels = FLEET_PIXELS_A_BIN if self._heat else PIXELS_A_BIN
            step = round_up(self.axis.seconds / min(widths.values()) * pixels)
            limits = stepped(limits, step)
        annotations = self.source.annotations(limits)
        shown = {self.focus} if self.focus is not None else set(colors)
        events = event_marks(annotations, shown, *limits)
        spans = current_job_spans(snapshot, colors, *limits, annotations)
        if not recent:
            spans = past_job_spans(annotations, tuple(colors), *limits)
        self._draw_charts(snapshot, colors, limits, events, stepping)
        rows = {s.device.id: shortest_label(device_label(s.device)) for s in snapshot.devices}
        if self.focus is not None:
            spans = tuple(span for span in spans if span.device == self.focus)
        bookings = booking_spans(snapshot, tuple(rows), *limits)
        if self.focus is not None:
            bookings = tuple(one for one in bookings if one.device == self.focus)
        held = {span.device for span in spans} | {one.device for one in bookings}
        rows = {device: name for device, name in rows.items() if device in held}
        self.jobs.show_spans(spans, limits, rows, bookings)
        self._jobs_title.setVisible(not self.jobs.titled)
        show_if_any(self.reserved, outlook(snapshot))
        self.gantt.setVisible(bool(spans or bookings or self.reserved.text()))
        self.events.show_marks(events, limits)
        listed = snapshot.jobs, tuple(colors), spans if not recent else ()
        if listed != self._listed:  # most readings come without a change of jobs
            self._listed = listed
            self._list_jobs((*spans, *current_job_spans(snapshot, colors, 0.0, snapshot.time)))
            self.bar.show_jobs(tuple(self._jobs.values())[-_LISTED_JOBS:], snapshot.time)
        self.bar.show_axis(self.axis, self._position(snapshot.time), self._key(colors))

    def _draw_charts(
        self,
        snapshot: Snapshot,
        colors: dict[str, str],
        limits: Limits,
        events: tuple[EventMark, ...],
        stepping: bool,
    ) -> None:
        """Draw all charts; while the axis moves in steps, draw only a few with each reading."""
        hz = snapshot.settings.telemetry_hz
        moments = [
            (event.start, theme.meaning_color(event.meaning))
            for event in events
            if event.line and event.start >= limits[0] and not (self._strips and event.device)
        ]
        appearance: object = object()
        if stepping:
            loads = self._state.history.loads
            sizes = tuple(self._widths().values())
            look = (tuple(colors.items()), self.focus, self._shown, self._placed_front)
            appearance = (look, self.axis.seconds, sizes, loads, tuple(moments))
        fields = self._schedule.next_charts(self._charts_to_draw(snapshot), limits, appearance, hz)
        if not self._heat:
            self._place_charts(self._shown)  # there may be more or fewer devices than before
        front = self._placed_front
        strips = {field for field in self.charts if self._heat or (front and field != front)}
        if not strips:
            self.fleet.forget()
        for chart in chart_models(snapshot, [field for field in fields if field in strips]):
            cursor = self._cursor_time()
            self.fleet.draw(chart, snapshot, limits, cursor, moments, named=not self._heat)
        if not self._heat:
            self._draw_curves(snapshot, colors, limits, fields, strips, moments, stepping)
            marks = [(e.device, e.start, e.end, theme.meaning_color(e.meaning)) for e in events]
            for field in fields:
                self.charts[field].show_lane_marks(marks)
        if fields:
            self._fold_charts(snapshot)

    def _draw_curves(
        self,
        snapshot: Snapshot,
        colors: dict[str, str],
        limits: Limits,
        fields: Collection[str],
        strips: Collection[str],
        moments: list[tuple[float, str]],
        stepping: bool,
    ) -> None:
        """Draw the charts of `fields` that are no strips, and renew the texts of some others."""
        fields = [field for field in fields if field not in strips]
        contents = self.source.contents(
            fields, tuple(colors), limits, self.compared, self._widths()
        )
        self._texts.begin(snapshot.settings.telemetry_hz)
        renewed = [
            field
            for at, field in enumerate(self.charts)
            if field not in strips and (not stepping or field in fields or self._texts.includes(at))
        ]
        front = {d: c for d, c in colors.items() if self.focus in (None, d)}
        for band in (self.jobs, self.events):
            band.leave_room(lane_values_width() if len(front) >= LANES_FROM else 0)
        for chart in chart_models(snapshot, renewed):
            card = self.charts[chart.field]
            if chart.field in fields:
                shown, behind = self._split(contents[chart.field])
                card.show_contents(chart, limits, shown, front, moments, behind)
            card.show_chart(chart, front)  # it names the scale of the contents
            if chart.field in fields:
                self._show_threshold(card, chart, snapshot, front)
                card.summary.show_text(self._summary(chart, limits, shown))
                self._show_cursor(card, chart, shown, front)

    def _widths(self) -> dict[str, int]:
        return {field: chart.view.pixels for field, chart in self.charts.items()}

    def _charts_to_draw(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the fields of the charts that are shown, and of those that may have data now.

        Charts without data are drawn only now and then, since nobody sees them.
        """
        now, span = time.monotonic(), (self._state.history.loads, self.axis.seconds, self.compared)
        if not self.axis.live or span != self._folded_span or now >= self._folds_due:
            self._folded_span, self._folds_due = span, now + _FOLDS_EVERY_S
            return tuple(self.charts)
        folded = [field for field in self.charts if field not in self._shown]
        known = {chart.field for chart in chart_models(snapshot, folded) if chart.absent is None}
        return tuple(field for field in self.charts if field in self._shown or field in known)

    def _show_threshold(
        self, card: ChartCard, chart: ChartModel, snapshot: Snapshot, devices: Iterable[str]
    ) -> None:
        """Show the alert on a chart that has one, unless it is being dragged."""
        if chart.field == self._dragged:
            return
        known = threshold(chart.field, snapshot, devices) if card.has_data else None
        level = known.level if known is not None and card.top is not None else None
        card.show_lines(chart, "" if known is None or level is None else describe(known, level))
        if card.top is None:
            card.view.show_threshold(None, "")
            card.show_lane_levels(chart, known.level if known else None)
        elif known is None:
            card.view.show_threshold(None, "")
        elif known.level is None:
            card.view.show_threshold(card.top, tr("No alert"))
        else:
            card.view.show_threshold(known.level, describe(known, known.level))

    def drag_threshold(self, field: str, level: float, done: bool) -> None:
        """Move the alert of a field to a level: on the screen, or once it is let go for good."""
        snapshot = self._state.snapshot
        if snapshot is None:
            return
        devices = [s.device.id for s in snapshot.devices if self.focus in (None, s.device.id)]
        known = threshold(field, snapshot, devices)
        if known is None:
            return
        self._dragged = "" if done else field
        self.charts[field].view.show_threshold(level, describe(known, level))
        if done:
            self._link.send(self, moved(known, level))

    def _split(self, contents: ChartContents) -> tuple[ChartContents, dict[str, Curve]]:
        """Separate what is in focus from the curves behind it."""
        focus = self.focus
        if focus is None or focus not in contents.lines:
            return contents, {}
        behind = {d: curve for d, curve in contents.lines.items() if d != focus}
        alone = replace(
            contents,
            lines={focus: contents.lines[focus]},
            bands={d: band for d, band in contents.bands.items() if d == focus},
            ghosts={d: curve for d, curve in contents.ghosts.items() if d == focus},
        )
        return alone, behind

    def _summary(self, chart: ChartModel, limits: Limits, contents: ChartContents) -> str:
        """Return the lowest, mean and highest value of the shown devices and time."""
        found = self.source.summary(chart.field, tuple(contents.lines), limits)
        if found is None:
            return ""
        low, mean, high = (format_field(chart.field, value).text for value in found)
        return tr("min {low} · mean {mean} · max {high}", low=low, mean=mean, high=high)

    def _fold_charts(self, snapshot: Snapshot) -> None:
        """Hide the charts that have no data now nor in the visible span, and name them."""
        absent = {
            chart.field: chart.absent
            for chart in chart_models(snapshot)
            if chart.absent is not None and not self.charts[chart.field].has_data
        }
        shown = tuple(field for field in self.charts if field not in absent)
        if not shown:
            shown, absent = tuple(self.charts), {}
        self._place_charts(shown)
        names = "; ".join(f"{title(field)} ({why})" for field, why in absent.items())
        text = tr("Not shown, as there is no data: {charts}", charts=names)
        show_if_any(self.folded, text if names else "")
        set_tooltip(self.folded, self.folded.text())

    def _show_cursor(
        self, card: ChartCard, chart: ChartModel, contents: ChartContents, colors: dict[str, str]
    ) -> None:
        moment = self._cursor_time()
        if moment is None:
            card.hide_cursor()
            return
        texts = {}
        for device, (times, values) in contents.lines.items():
            value = value_at(times, values, moment, _REACH * contents.step)
            texts[device] = NOT_AVAILABLE
            if value is not None:
                texts[device] = format_field(chart.field, value * scale(chart.field)).text
        card.show_cursor(chart, moment, texts, colors)

    def _cursor_time(self) -> float | None:
        start, end = self.axis.limits
        return None if self.cursor_share is None else start + self.cursor_share * (end - start)

    def _position(self, now: float) -> str:
        """Describe the cursor and the stretch of time that is shown."""
        parts, moment = [], self._cursor_time()
        if self.compared is not None:
            at = clock(self.compared, now)
            parts.append(tr("Comparing with {time} (faded)", time=at))
        if moment is not None:
            parts.append(tr("Cursor at {time}", time=clock(moment, now)))
        if not self.axis.live:
            parts.append(tr("Paused · press L for live"))
        return " · ".join(parts)

    def _key(self, colors: dict[str, str]) -> str:
        """Return the colour of the time that is compared, where that is a single one."""
        found = set(ghost_colors(colors).values()) if self.compared is not None else set()
        return found.pop() if len(found) == 1 else ""

    def _list_jobs(self, spans: tuple[JobSpan, ...]) -> None:
        self._jobs |= {span.job: span for span in spans}
        newest = sorted(self._jobs.values(), key=lambda span: span.start)[-_MOST_JOBS:]
        self._jobs = {span.job: span for span in newest}

    def _show_next_job(self, step: int) -> None:
        """Show the next job that started after the middle of the charts, or the previous one."""
        start, end = self.axis.limits
        middle, least = (start + end) / 2, _MARGIN * 0.1 * (end - start)
        spans = sorted(self._jobs.values(), key=lambda s: ((s.start + s.end) / 2, s.start))
        there = [s for s in spans if ((s.start + s.end) / 2 - middle) * step > least]
        if there:
            span = there[0] if step > 0 else there[-1]
            self.show_time(span.start, span.end)
