"""Show when the jobs of the queue run, and what a move would change before it is made."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from gpudeck.app.jobs.queue_timeline import change_text, queue_timeline
from gpudeck.app.jobs.timeline_field import TimelineField
from gpudeck.app.jobs.timeline_legend import TimelineLegend
from gpudeck.app.language.texts import tr
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, column, label, row, set_text
from gpudeck.scheduler.protocol.jobs import Queued
from gpudeck.scheduler.protocol.schedule import Landing, Moved
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.change import GetSchedule, Move

_EVERY_S = 5.0
"""Seconds after which the expected starts are requested again though no job changed."""


class TimelineView(QWidget):
    """Show the timeline of the queue with the expected starts that the daemon plans."""

    chosen = Signal(int)
    """The user chose the job with this number."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._snapshot: Snapshot | None = None
        self._landings: Sequence[Landing] = ()
        self._asked: tuple[float, tuple[tuple[int, str], ...]] = (0.0, ())
        """When the expected starts were requested, and the jobs at that time."""
        self._aim: Moved | None = None
        self._planned: Sequence[Landing] | None = None
        self.field = TimelineField()
        self.field.chosen.connect(self.chosen)
        self.field.aimed.connect(self._plan)
        self.field.dropped.connect(lambda m: link.send(self, Move(m.job, m.beside, m.after)))
        self.hint = label(size="small", meaning="muted", wrap=True)
        area = QScrollArea()
        area.setWidget(self.field)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusProxy(self.field)
        below = row(Stretch(self.hint), TimelineLegend(), spacing=theme.M)
        self.setLayout(column(Stretch(area), below, margins=(theme.M, theme.M, theme.M, theme.M)))

    def show_snapshot(self, snapshot: Snapshot, selected: int | None) -> None:
        """Show a snapshot, and request the expected starts if they may have changed."""
        self._snapshot, self.field.selected = snapshot, selected
        jobs = tuple((job.id, job.status) for job in snapshot.jobs)
        at, before = self._asked
        if jobs != before or snapshot.time - at >= _EVERY_S:
            self._asked = snapshot.time, jobs
            self._link.send(self, GetSchedule(), self._take, background=True)
        self._show()

    def _take(self, landings: Sequence[Landing]) -> None:
        self._landings = landings
        self._show()

    def _plan(self, aim: Moved | None) -> None:
        """Request what a move would change, while the user still holds the job."""
        self._aim, self._planned = aim, None
        if aim is not None:
            self._link.send(
                self,
                GetSchedule(aim),
                lambda landings: self._take_plan(aim, landings),
                lambda problem: self._refuse(aim, problem),
                background=True,
            )
        self._show()

    def _take_plan(self, aim: Moved, landings: Sequence[Landing]) -> None:
        """Show a plan, unless the user aims elsewhere by now."""
        if aim == self._aim:
            self._planned = landings
            self._show()

    def _refuse(self, aim: Moved, problem: str) -> None:
        if aim == self._aim:
            set_text(self.hint, problem)

    def _show(self) -> None:
        snapshot, planned = self._snapshot, self._planned
        if snapshot is None:
            return
        preview = None if planned is None else queue_timeline(snapshot, planned)
        self.field.show_timeline(queue_timeline(snapshot, self._landings), preview)
        if planned is not None:
            jobs = {job.id: job for job in snapshot.jobs}
            set_text(self.hint, change_text(self._landings, planned, jobs, snapshot.time))
        elif self._aim is None:
            waits = any(isinstance(job.state, Queued) for job in snapshot.jobs)
            text = tr("Drag a waiting job; you see the new times before it moves")
            set_text(self.hint, text if waits else tr("No job waits"))
