"""Everything about one job, its log, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from app.jobs.charts_view import JobCharts
from app.jobs.log import LogTail
from app.jobs.log_view import LogView
from app.jobs.rows import details
from app.jobs.timeline import Chapter, chapter, story
from app.link.requests import Tail, Tailed, Timeline, Told
from app.link.state import State
from app.report.file import FILTER
from app.widgets import theme
from app.widgets.controls import ask_save_path, button, card, column, elided, label, row, set_text
from app.widgets.safe_text import SafeText
from scheduler.protocol.jobs import Event, Job, Queued
from scheduler.protocol.snapshot import Snapshot


class JobDetails(QWidget):
    """Emits `cancelled` and `repeated` with the job's id, `held` with it and whether, `moved` with 1 for later and -1 for earlier,
    `reported` with its id and the file that a report on it is to be written to.

    `wanted` carries what is to be read of the job: its log, its timeline.
    """

    cancelled = Signal(int)
    reported = Signal(int, str)
    repeated = Signal(int)
    held = Signal(int, bool)
    moved = Signal(int)
    wanted = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._shown: Job | None = None
        self._story: tuple[tuple[str, str], ...] = ()
        self._events: tuple[Event, ...] = ()
        self._read: Chapter | None = None
        self._tail: LogTail | None = None
        self._asked = False
        self.title = label(strong=True)
        self.state = label()
        self.doing = elided(meaning="muted")
        self.earlier = button("Earlier", tooltip="Before the job above it (Alt+Up)")
        self.later = button("Later", tooltip="After the job below it (Alt+Down)")
        self.hold = button("Hold", tooltip="Do not start it until it is released (Ctrl+H)")
        self.cancel = button("Cancel", tooltip="Take it from the queue, or end its processes (Del)")
        self.report = button(
            "Report", tooltip="Save a report on this job: HTML, PDF or Markdown (Ctrl+Shift+R)"
        )
        self.again = button("Run again", tooltip="Queue the same command once more (Ctrl+R)")
        self.earlier.clicked.connect(lambda: self.moved.emit(-1))
        self.later.clicked.connect(lambda: self.moved.emit(1))
        self.hold.clicked.connect(self._hold)
        self.cancel.clicked.connect(self._cancel)
        self.again.clicked.connect(self._again)
        self.report.clicked.connect(self._report)
        self.facts = SafeText()
        self.facts.setAccessibleName("About the job")
        self.output = LogView()
        self.log = self.output.text
        header = row(
            self.title,
            self.state,
            self.doing,
            self.earlier,
            self.later,
            self.hold,
            self.cancel,
            self.report,
            self.again,
        )
        header.setStretch(2, 1)
        both = QSplitter(Qt.Orientation.Horizontal)
        both.setChildrenCollapsible(False)
        self.charts = JobCharts()
        known = QWidget()
        known.setLayout(column(self.facts, self.charts))
        both.addWidget(known)
        both.addWidget(self.output)
        both.setSizes([430, 570])
        inner = QVBoxLayout()
        inner.setSpacing(theme.S)
        inner.addLayout(header)
        inner.addWidget(both, 1)
        self.setLayout(column(card(inner)))

    def show_job(self, job: Job, snapshot: Snapshot) -> None:
        """Show a job of the snapshot. What is not in there is asked for, once for each change."""
        if self._tail is None or self._tail.job != job.id:
            self._tail, self._asked, self._events = LogTail(job.id), False, ()
            self._story = ()
            self.output.clear()
        ended = (
            self._shown is not None
            and self._shown.id == job.id
            and self._shown.active
            and not job.active
        )
        self._shown = job
        shown = details(job, snapshot)
        self._tell(story(shown, self._events, snapshot.time))
        set_text(self.title, shown.title)
        set_text(self.state, shown.state)
        theme.mark(self.state, "meaning", shown.meaning)
        set_text(self.doing, shown.doing if job.active else "")
        self.output.text.setPlaceholderText("No output yet" if job.active else "No output")
        for one in (self.earlier, self.later, self.hold):
            one.setVisible(isinstance(job.state, Queued))
        self.hold.setText("Release" if job.spec.hold else "Hold")
        self.cancel.setVisible(job.active)
        if self._read != (now := chapter(job)):
            self._read = now
            self.wanted.emit(Timeline(job.id))
        if job.active or ended or self._tail.offset is None:
            self._want()

    def draw(self, job: Job, state: State) -> None:
        """Its charts."""
        self.charts.show_job(job, state)

    def add_events(self, told: Told) -> bool:
        """A timeline that was asked for; whether it is that of the job that is shown."""
        mine = self._shown is not None and told.job == self._shown.id
        self._events = told.events if mine else self._events
        return mine

    def events_failed(self) -> None:
        """The timeline could not be read; the next refresh asks again."""
        self._read = None

    def add_log(self, piece: Tailed) -> None:
        """A piece of log that was asked for. Follows the end unless the user scrolled away from it."""
        if self._tail is None or piece.job != self._tail.job:
            return
        self._asked = False
        if text := self._tail.feed(piece.start, piece.data, piece.end):
            self.output.add(text)

    def log_failed(self) -> None:
        """The piece could not be read; the next refresh asks again."""
        self._asked = False

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange and self._shown is not None:
            self.facts.show_table(self._story)
        super().changeEvent(event)

    def _tell(self, rows: tuple[tuple[str, str], ...]) -> None:
        """Where the same job's facts changed, the reader stays where they are."""
        if rows == self._story:
            return
        bar = self.facts.verticalScrollBar()
        at = bar.value() if self._story else 0
        self._story = rows
        self.facts.show_table(rows)
        bar.setValue(at)

    def _hold(self) -> None:
        if self._shown is not None and isinstance(self._shown.state, Queued):
            self.held.emit(self._shown.id, not self._shown.spec.hold)

    def _cancel(self) -> None:
        if self._shown is not None and self._shown.active:
            self.cancelled.emit(self._shown.id)

    def _again(self) -> None:
        if self._shown is not None:
            self.repeated.emit(self._shown.id)

    def _report(self) -> None:
        if self._shown is None:
            return
        job = self._shown.id
        ask_save_path(
            self,
            "Save a report on the job",
            f"job-{job}.html",
            FILTER,
            lambda file: self.reported.emit(job, file),
        )

    def _want(self) -> None:
        if self._tail is not None and not self._asked:
            self._asked = True
            self.wanted.emit(Tail(self._tail.job, self._tail.offset))
