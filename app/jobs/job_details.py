"""Show one job with its facts, charts, timeline and log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QComboBox,
    QPushButton,
    QSizePolicy,
    QSplitter,
    QWidget,
)

from gpudeck.app.charts.printed_curves import PrintedCurves
from gpudeck.app.format.failure import LOG_END, explain_failure, has_failed
from gpudeck.app.format.free_devices import largest_memory
from gpudeck.app.format.job_rows import details
from gpudeck.app.format.values import clock
from gpudeck.app.jobs.failure_view import FailureCard
from gpudeck.app.jobs.job_charts import JobCharts
from gpudeck.app.jobs.job_views import JobViews
from gpudeck.app.jobs.log_tail import LogTail
from gpudeck.app.jobs.log_view import LogView
from gpudeck.app.jobs.requests import ReadLog, ReadVerdicts
from gpudeck.app.jobs.table import pill_meaning
from gpudeck.app.jobs.verdict_view import VerdictView
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.report.file import FILTER, WriteReport
from gpudeck.app.runs.verdicts import Verdict
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.controls import (
    NO_LIMIT,
    Stretch,
    add_shortcuts,
    ask_save_path,
    button,
    card,
    column,
    elided,
    pill,
    row,
    set_pill,
    set_text,
    show_if_any,
)
from gpudeck.app.widgets.safe_text import SafeText
from gpudeck.app.widgets.share_bar import ShareBar
from gpudeck.scheduler.protocol.jobs import Changes, Event, Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.change import Edit
from gpudeck.scheduler.verbs.jobs import GetTimeline

_BELOW_SIZES, _BESIDE_SIZES, _MOST_FACTS = (570, 430), (400, 600), 0.6
"""The shares of the facts and the log where the job is below the table and beside it, and the
largest share of facts that are as high as they need to be."""
_STACKED = 640
"""Pixels of width beside the table below which the charts share the place of the log."""
_AGAIN = 430
"""Pixels of width below which the menu alone repeats a job."""
_BELOW, _LEAST = 400, 220
"""Pixels of width below which the log is below the facts in any case, and that they need then."""
_WIDE, _NARROWEST = 900, 800
"""Pixels of width from which on two charts stand side by side, and of a window without any."""


class JobDetails(QWidget):
    """Show one job, and cancel, hold, move, repeat or report on it."""

    repeated = Signal(int, dict, bool)
    """The user wants the job with this number to run again, with other values of these fields, and
    in its artefacts or not."""
    moved = Signal(int)
    """The user wants the job to wait behind the next one (1), or before the previous one (-1)."""
    enlarged = Signal(bool)
    """The user wants the log alone on the screen, or the page as it was."""
    cancelled = Signal()
    """The user wants the job cancelled."""
    changed = Signal()
    """More is known about the job."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._shown: Job | None = None
        self._table: tuple[tuple[str, str], ...] = ()
        self._events: tuple[Event, ...] = ()
        self._timeline_key: TimelineKey | None = None
        self.tail: LogTail | None = None
        self._printed = PrintedCurves()
        self._loading = False
        self.narrow = self.low = False
        """The window has no room for buttons that the menu has, or for charts."""
        self.title = elided()
        self.title.setProperty("strong", "true")
        self.title.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.state = pill()
        self.doing, self.share = elided(meaning="muted"), ShareBar()
        self.earlier = button(tr("Earlier"), tooltip=tr("Move it before the job above it (Alt+Up)"))
        self.later = button(tr("Later"), tooltip=tr("Move it after the job below it (Alt+Down)"))
        self.hold = button(tr("Hold"), tooltip=tr("Do not start it until it is released (Ctrl+H)"))
        self.cancel = button(
            tr("Cancel"), tooltip=tr("Remove it from the queue, or end its processes (Del)")
        )
        self.report = button(
            tr("Report"),
            tooltip=tr("Save a report on this job: HTML, PDF or Markdown (Ctrl+Shift+R)"),
        )
        self.again = button(tr("Run again"), tooltip=tr("Queue the same command again (Ctrl+R)"))
        self.notify = button(
            tr("Notify me"), tooltip=hint("job.notify"), checkable=True, clicked=self._notify
        )
        self.whole_log = button(
            tr("Full screen"),
            tooltip=hint("job.log"),
            kind="quiet",
            checkable=True,
            clicked=self._show_whole_log,
        )
        self.more = button(tr("Details"), kind="quiet", tooltip=hint("job.details"), checkable=True)
        self.more.setChecked(True)
        self.more.clicked.connect(self._open)
        self._opened: bool | None = None
        """The user opened or closed what is below the title; None: it is open where it has room."""
        self._foldable, self._beside = True, False
        self.failure = FailureCard()
        self.failure.retried.connect(self._repeat_with)
        self.attempts = QComboBox()
        self.attempts.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.attempts.setAccessibleName(tr("Attempt whose log is shown"))
        self.attempts.activated.connect(self._choose_attempt)
        self.verdicts = VerdictView()
        self._judged: object = None
        """What the newest request for verdicts was about: the job, its state and the time."""
        self.facts = SafeText()
        self.facts.setAccessibleName(tr("About the job"))
        self.output = LogView()
        self.log = self.output.text
        self.charts = JobCharts()
        self.views = JobViews(self.output, self.charts)
        self._known, self._parts = QWidget(), QSplitter(Qt.Orientation.Horizontal)
        self._connect()
        self._lay_out()

    def _connect(self) -> None:
        self.earlier.clicked.connect(lambda: self.moved.emit(-1))
        self.later.clicked.connect(lambda: self.moved.emit(1))
        self.hold.clicked.connect(self._hold)
        self.cancel.clicked.connect(self.cancelled)
        self.again.clicked.connect(self._repeat)
        self.report.clicked.connect(self._report)
        add_shortcuts(self, {"Esc": self.leave_whole_log})

    def _lay_out(self) -> None:
        header = row(
            self.title,
            self.state,
            Stretch(),
            self.earlier,
            self.later,
            self.hold,
            self.notify,
            self.cancel,
            self.report,
            self.again,
            self.more,
        )
        both = self._parts
        both.setChildrenCollapsible(False)
        both.setHandleWidth(theme.M)
        self._known_layout = row(Stretch(self.facts), self.charts, spacing=theme.M)
        self._known.setLayout(self._known_layout)
        self._divided = False
        """The user divided the room between the facts and the log."""
        both.splitterMoved.connect(self._keep_division)
        self.output.line.insertWidget(0, self.attempts)
        self.output.line.addWidget(self.whole_log)
        both.addWidget(self._known)
        both.addWidget(self.views)
        both.setSizes(_BELOW_SIZES)
        inner = column(header, self.doing, self.share, self.failure, self.verdicts, Stretch(both))
        self.setLayout(column(card(inner)))

    def show_job(self, job: Job, snapshot: Snapshot) -> None:
        """Show a job of the snapshot; request its log and timeline after each change."""
        if self.tail is None or self.tail.job != job.id:
            self._events, self._table = (), ()
            self.verdicts.show_verdicts(())
            self._begin_log(job.id)
        self._offer_attempts(job)
        ended = (
            self._shown is not None
            and self._shown.id == job.id
            and self._shown.active
            and not job.active
        )
        self._shown = job
        shown = details(job, snapshot)
        # why it failed, or what it reached, is said above the facts
        above = {tr("Reason")} if has_failed(job) else {tr("Verdict"), "TFLOP/s"}
        above |= {tr("Energy")} if self.verdicts.shown else set()  # its verdict says it
        facts = [fact for fact in shown.facts if fact[0] not in above]
        self._show_table(fact_table(facts, self._events, snapshot.time))
        set_text(self.title, shown.title)
        set_pill(self.state, tr(shown.state), pill_meaning(shown.state, shown.meaning))
        show_if_any(self.doing, shown.doing if job.active else "")
        self.share.show_share(shown.share if job.active else None)
        self.output.text.setPlaceholderText(tr("No output yet") if job.active else tr("No output"))
        self.hold.setText(tr("Release") if job.spec.hold else tr("Hold"))
        self.cancel.setVisible(job.active)
        self._explain(job, snapshot)
        self.notify.setChecked(job.id in self._state.notify)
        self.cancel.setText(tr("Cancel") if isinstance(job.state, Queued) else tr("Stop…"))
        self._fit_buttons()
        if self._timeline_key != (now := timeline_key(job, snapshot.time)):
            self._timeline_key = now
            self._link.send(
                self,
                GetTimeline(job.id),
                partial(self._take_events, job.id),
                self._retry_events,
                background=True,
            )
        self._judge(job, snapshot.time)
        unread = self.tail is not None and self.tail.offset is None
        if job.active or ended or unread:
            self._load_log()

    def _judge(self, job: Job, now: float) -> None:
        """Request the verdicts on a job that began: from time to time, and once it has ended."""
        key = (job.id, job.status, job.tries, now // JUDGE_S if job.active else 0)
        if isinstance(job.state, Queued) or job.spec.where or key == self._judged:
            return
        self._judged = key
        self._link.send(
            self,
            ReadVerdicts(job.id),
            partial(self._take_verdicts, job.id),
            lambda _: None,
            background=True,
        )

    def _take_verdicts(self, job: int, found: tuple[Verdict, ...]) -> None:
        if self._shown is not None and job == self._shown.id:
            self.verdicts.show_verdicts(found)
            self.verdicts.setVisible(bool(found) and self._parts.isVisibleTo(self))
            self.changed.emit()

    def _begin_log(self, job: int, attempt: int | None = None) -> None:
        """Forget the log that is shown, and read another one at the next refresh."""
        self.tail, self._loading, self._printed = LogTail(job, attempt), False, PrintedCurves()
        self.output.clear()
        self.views.curves.show_curves({})

    def _offer_attempts(self, job: Job) -> None:
        """Offer the logs of all attempts of a job that had several."""
        count = job.tries + 1
        self.attempts.setVisible(count > 1)
        if count != self.attempts.count():
            self.attempts.clear()
            self.attempts.addItems([tr("Attempt {n}", n=n) for n in range(1, count + 1)])
        chosen = self.tail.attempt if self.tail is not None else None
        self.attempts.setCurrentIndex(count - 1 if chosen is None else chosen - 1)

    def _choose_attempt(self, at: int) -> None:
        if self._shown is not None:
            newest = at == self.attempts.count() - 1
            self._begin_log(self._shown.id, None if newest else at + 1)
            self._load_log()

    def _explain(self, job: Job, snapshot: Snapshot) -> None:
        """Say why a job failed, and mark the line of its newest log that shows it."""
        newest = self.tail is not None and self.tail.attempt is None
        failure = None
        if has_failed(job) and newest:
            log = self.log.toPlainText()[-LOG_END:]
            failure = explain_failure(job, log, largest_memory(snapshot))
        self.failure.show_failure(job, failure)
        self.again.setVisible(self._has_room_for_again and not self.failure.explains)
        self.output.mark_cause(failure.line if failure else "")

    def fold(self, *, possible: bool) -> None:
        """Leave the title alone where the user wants that, or a low window needs the room."""
        self._foldable = possible
        opened = not possible or (not self.low if self._opened is None else self._opened)
        self.more.setVisible(possible)
        self.more.setChecked(opened)
        self._parts.setVisible(opened)
        self.failure.setVisible(opened and self.failure.explains)
        self.verdicts.setVisible(opened and bool(self.verdicts.shown))
        self.setMaximumHeight(NO_LIMIT if opened else self.minimumSizeHint().height())

    def _open(self, wanted: bool) -> None:
        self._opened = wanted
        self.fold(possible=self._foldable)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the charts side by side where there is room."""
        super().resizeEvent(event)
        self.again.setVisible(self._has_room_for_again and not self.failure.explains)
        self._fit_buttons()
        self._turn()

    @property
    def _has_room_for_again(self) -> bool:
        return not self.narrow or self.width() >= theme.px(_AGAIN)

    def _fit_buttons(self) -> None:
        """Leave out the buttons without room, which the menu has, too; the last ones first."""
        job = self._shown
        waits = job is not None and isinstance(job.state, Queued)
        wanted: dict[QPushButton, bool] = {
            self.hold: waits,
            self.report: True,
            self.notify: job is not None and job.active,
            self.earlier: waits,
            self.later: waits,
        }
        room = self.width() - self._least_header(self.title)
        for made, useful in wanted.items():
            width = made.sizeHint().width() + theme.S
            fits = useful and not self.narrow and room >= width
            made.setVisible(fits)
            room -= width if fits else 0

    def _least_header(self, *more: QWidget) -> int:
        """Return the pixels that the title line needs for what it always has, and for `more`."""
        always = (*more, self.state, self.cancel, self.again, self.more)
        shown = (part for part in always if part.isVisibleTo(self))
        return sum(part.sizeHint().width() + theme.S for part in shown) + 2 * theme.L + 2

    def arrange(self, *, beside: bool) -> None:
        """Put the log below the facts where the job is shown beside the table, else beside them."""
        self._beside = beside
        self._turn()

    def _turn(self) -> None:
        """Put the log below the facts or beside them; a narrow one shares its place with charts."""
        stacked = self._beside and self.width() < theme.px(_STACKED)
        two = stacked or self.width() >= theme.px(_WIDE)
        self.charts.arrange(2 if two else 1, filling=stacked)
        below = self._beside or self.width() < theme.px(_BELOW)
        side = Qt.Orientation.Vertical if below else Qt.Orientation.Horizontal
        if stacked:
            self.views.take_charts()
        else:
            self._known_layout.addWidget(self.charts)
        if side != self._parts.orientation():
            self._parts.setOrientation(side)
            self._divided = False
            self._parts.setSizes(_BESIDE_SIZES if below else _BELOW_SIZES)
        self._fit_views()
        self._fit_facts()

    def _keep_division(self) -> None:
        self._divided = True

    def _fit_views(self) -> None:
        """Show what a job prints while it runs or if it failed, else its charts; curves first."""
        job = self._shown
        failed = job is not None and has_failed(job)
        runs = job is not None and job.active and not self.log.document().isEmpty()
        self.views.fit(prefer_log=failed or runs)

    def _fit_facts(self) -> None:
        """Give the facts the height that they need, and the rest to the log."""
        room = self._parts.height()
        if self._parts.orientation() == Qt.Orientation.Horizontal or self._divided or room < 1:
            return
        needed = self.facts.document().size().height() + theme.S
        if self.charts.parent() is self._known and not self.charts.isHidden():
            needed = max(needed, self.charts.full_height)
        facts = round(min(needed, _MOST_FACTS * room))
        if self._parts.sizes()[0] != facts:
            self._parts.setSizes((facts, room - facts))

    def minimumSizeHint(self) -> QSize:
        """Need no width for facts and log side by side: they turn where there is little room."""
        hint, header = super().minimumSizeHint(), self._least_header()
        if self.narrow and self.again.isVisibleTo(self):
            header -= self.again.sizeHint().width() + theme.S
        return QSize(min(hint.width(), max(header, theme.px(_LEAST))), hint.height())

    def draw(self, job: Job) -> None:
        """Draw the charts of the job, if there is room for them."""
        if self.low or self.window().width() < theme.px(_NARROWEST):
            self.charts.hide()
        else:
            self.charts.show_job(job, self._state)
        self._fit_views()
        self._fit_facts()

    def _take_events(self, job: int, events: tuple[Event, ...]) -> None:
        if self._shown is not None and job == self._shown.id:
            self._events = events
            self.changed.emit()

    def _retry_events(self, message: str) -> None:
        """Read the timeline again at the next refresh."""
        self._timeline_key = None
        self._report_failure(message)

    def _take_log(self, tail: LogTail, piece: Output) -> None:
        """Add a piece of the log. Follow its end, unless the user scrolled away from it."""
        if tail is not self.tail:
            return
        self._loading = False
        if self.tail.offset in (None, piece.start):
            self._printed.feed(piece.data)
            self.views.curves.show_curves(self._printed.points)
            self._fit_views()
        if text := self.tail.feed(*piece):
            self.output.add(text)

    def _retry_log(self, message: str) -> None:
        """Read the log again at the next refresh."""
        self._loading = False
        self._report_failure(message)

    def _report_failure(self, message: str) -> None:
        if self._state.link.connected:
            self._link.failed.emit(message)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange and self._shown is not None:
            self.facts.show_table(self._table)
        super().changeEvent(event)

    def _show_table(self, rows: tuple[tuple[str, str], ...]) -> None:
        """Show other facts, and keep the reader's place."""
        if rows == self._table:
            return
        bar = self.facts.verticalScrollBar()
        at = bar.value() if self._table else 0
        self._table = rows
        self.facts.show_table(rows)
        bar.setValue(at)

    def _notify(self, wanted: bool) -> None:
        """Have the desktop notify the user when the job ends, however long it ran."""
        if self._shown is not None:
            change = self._state.notify.add if wanted else self._state.notify.discard
            change(self._shown.id)

    def leave_whole_log(self) -> None:
        """Show the whole page again."""
        if self.whole_log.isChecked():
            self.whole_log.click()

    def _show_whole_log(self, whole: bool) -> None:
        if whole:
            self.views.show_log()
        self._known.setVisible(not whole)
        if whole:
            self._parts.show()  # they may be folded
        self.enlarged.emit(whole)
        self.log.setFocus()

    def find_in_log(self) -> None:
        """Show the log, and let the user type what to find in it."""
        self.views.show_log()
        self.output.box.setFocus()

    def _hold(self) -> None:
        if self._shown is not None and isinstance(self._shown.state, Queued):
            changes = Changes(hold=not self._shown.spec.hold)
            self._link.send(self, Edit(self._shown.id, changes))

    def _repeat(self) -> None:
        self._repeat_with({}, False)

    def _repeat_with(self, changes: dict[str, Any], artefacts: bool) -> None:
        if self._shown is not None:
            self.repeated.emit(self._shown.id, changes, artefacts)

    def _report(self) -> None:
        if self._shown is not None:
            job = self._shown.id
            ask_save_path(
                self,
                tr("Save a report on the job"),
                f"job-{job}.html",
                FILTER,
                partial(self._write_report, job),
            )

    def _write_report(self, job: int, file: str) -> None:
        self._link.send(
            self, WriteReport(job, file), lambda _: self._link.announce_file(tr("Report"), file)
        )

    def _load_log(self) -> None:
        if self.tail is not None and not self._loading:
            self._loading = True
            job = self.tail.job
            self._link.send(
                self,
                ReadLog(job, self.tail.offset, self.tail.attempt),
                partial(self._take_log, self.tail),
                self._retry_log,
                background=True,
            )


JUDGE_S = 30.0
"""Seconds after which a job that runs is judged again."""
RENEW_S = 5.0
"""Seconds after which a timeline is read again: other programs may add to it."""

TimelineKey = tuple[int, str, int, bool, float | None, Spec, float]


def timeline_key(job: Job, now: float) -> TimelineKey:
    """Return a value that differs where the job's timeline may have changed."""
    stopping = isinstance(job.state, Running) and job.state.stopping
    return job.id, job.status, job.tries, stopping, job.place, job.spec, now // RENEW_S


_BEGUN = ("submitted", "started")
"""The first events of every job that ran."""
_SHORT = 240
"""Characters of a fact that are shown at once; a longer fact is repeated whole at the end."""


def fact_table(
    facts: Sequence[tuple[str, str]], events: Sequence[Event], now: float
) -> tuple[tuple[str, str], ...]:
    """Return captions and values: the reason, the other facts, the events, and long facts."""
    reason = tr("Reason")
    first = tuple(fact for fact in facts if fact[0] == reason)
    rest = tuple((name, _beginning(text)) for name, text in facts if name != reason)
    long = tuple(
        (tr("{caption}, whole", caption=name), text)
        for name, text in facts
        if name != reason and len(text) > _SHORT
    )
    # the time above says it of a job that ended at its first attempt
    told = tuple(event.what for event in events[:2]) == _BEGUN and len(events) == len(_BEGUN) + 1
    lines = [f"{clock(event.time, now)}  {_event(event)}" for event in (() if told else events)]
    return (
        *first,
        *rest,
        *(((tr("Timeline") if i == 0 else ""), line) for i, line in enumerate(lines)),
        *long,
    )


def _event(event: Event) -> str:
    """Return an event of the timeline, such as "failed: exit code 1"."""
    what = tr(event.what)
    return tr("{what}: {text}", what=what, text=tr_text(event.text)) if event.text else what


def _beginning(text: str) -> str:
    if len(text) <= _SHORT:
        return text
    return tr(
        "{begin}… ({n} characters; the whole text is at the end)", begin=text[:_SHORT], n=len(text)
    )
