"""Show the jobs in a table, with the chosen job below."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QSize, Qt, QTimer
from PySide6.QtGui import QAction, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QPushButton, QSplitter, QWidget

from gpudeck.app.format.job_rows import describe
from gpudeck.app.format.values import device_label
from gpudeck.app.jobs.arrangement import Arrangement, SortOrder, jobs_of
from gpudeck.app.jobs.bookings_panel import BookingsPanel
from gpudeck.app.jobs.compare import JobCompare
from gpudeck.app.jobs.filter_view import JobFilter
from gpudeck.app.jobs.fold_details import FoldDetails
from gpudeck.app.jobs.form_view import JobFormView
from gpudeck.app.jobs.groups_panel import GroupsPanel
from gpudeck.app.jobs.history import JobHistory
from gpudeck.app.jobs.job_details import JobDetails
from gpudeck.app.jobs.job_keys import RUNNING, WAITING
from gpudeck.app.jobs.listing import (
    JobList,
    can_swap,
    history_search,
)
from gpudeck.app.jobs.removal import JobRemoval
from gpudeck.app.jobs.requests import RepeatJobs, SearchJobs
from gpudeck.app.jobs.table import HEADINGS, JobTable
from gpudeck.app.jobs.table_view import JobTableView
from gpudeck.app.jobs.timeline_view import TimelineView
from gpudeck.app.jobs.usage_panel import UsagePanel
from gpudeck.app.language.texts import tr, tr_count, tr_noop
from gpudeck.app.link.link import Link
from gpudeck.app.link.notice import Notice, NoticeAction
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.actions import bind_actions, menu_of, show_menu
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    choice_box,
    column,
    delay,
    empty_label,
    label,
    row,
    set_text,
)
from gpudeck.app.widgets.icon_button import IconButton
from gpudeck.app.widgets.list_table import height_of_rows, list_card
from gpudeck.app.widgets.segments import Segments
from gpudeck.app.widgets.toast import open_path
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, suspension_of
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.verbs.change import Move
from gpudeck.scheduler.verbs.groups import Pause
from gpudeck.scheduler.verbs.jobs import GetJob
from gpudeck.scheduler.verbs.suspension import ResumeJob, SuspendJob

EMPTY = tr_noop(
    "No jobs yet. Start one here (Ctrl+N), on the Workloads page (Ctrl+3), or in a terminal: "
    "gpudeck submit -- python train.py"
)
NOTHING_FOUND = tr_noop("No job matches the filter.")
SEARCHING = tr_noop("Searching…")
MENU = (
    "job.repeat",
    "job.template",
    "job.notify",
    "job.copy",
    "job.folder",
    "job.report",
    "",
    "job.hold",
    "job.suspend",
    "job.earlier",
    "job.later",
    "",
    "job.cancel",
)
"""The actions of the menu of a row; an empty name is a line between them."""
MORE = ("jobs.timeline", "jobs.groups", "jobs.bookings", "jobs.usage")
"""The actions of the menu that replaces their buttons in a narrow window."""
NARROW = 1000
"""Pixels of a window below which there is no room for all buttons; more where text is large."""
_PAUSE, _VIEWS = 640, 840
"""Pixels of a page from which on there is room for the button that pauses the queue, and for the
views."""
_LOW, _LEAST_ROWS = 640, 5
"""Pixels of the height of a window without room for charts, and the rows that it shows."""
_BESIDE = 1100
"""Pixels of the page from which on the chosen job is beside the table, not below it."""
_TABLE_SHARE = {False: 0.47, True: 0.48}
"""The share of the table above the chosen job, and beside it, until the user moves the handle."""
_TYPING_MS = 150
"""Milliseconds after the last keystroke, when the search starts."""

Panel = GroupsPanel | BookingsPanel | UsagePanel
"""What is shown in place of the chosen job, with its button above the table."""


class JobsPage(QWidget):
    """List the jobs, show the chosen one, and queue, move and cancel jobs."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._chosen: int | None = None
        self._shares, self._moved = dict(_TABLE_SHARE), set[bool]()
        """The share of the table above and beside the others, and which of them the user chose."""
        self._divided: tuple[bool, tuple[bool, ...], QSize] | None = None
        """What the room was divided for."""
        self._refreshing = False
        """The details are shown once at the end, not with each change of the selection."""
        self._sought: int | None = None
        """The number of a job that was requested from the daemon."""
        self.chooser = JobFilter()
        self.filter, self.kinds = self.chooser.box, self.chooser.kinds
        self._listing, self._history = JobList(), JobHistory()
        self._arrangement = Arrangement()
        self._search: Search | None = None
        self._typing = delay(self, _TYPING_MS, self._load_page)
        self.count = label(size="small", meaning="muted")
        self.model = JobTable()
        self.table = JobTableView(self.model)
        self.empty = empty_label(tr(EMPTY))
        self.details, self.compared = JobDetails(state, link), JobCompare(link)
        self.form, self.groups = JobFormView(link), GroupsPanel(link)
        self.bookings, self.fold = BookingsPanel(link), FoldDetails(link)
        self.usage = UsagePanel(link)
        self.timeline = TimelineView(link)
        self.removal = JobRemoval(self, link)
        self.asking = self.removal.asking
        self.several = button("", tooltip=tr("Cancel all selected jobs that have not ended (Del)"))
        self.pause = button(
            tr("Pause queue"),
            tooltip=tr("Start no more jobs; running jobs continue"),
            checkable=True,
        )
        self.open_groups = button(
            tr("Groups"),
            tooltip=hint("jobs.groups", tr("Limits of groups, and the health of clusters")),
        )
        self.open_bookings = button(
            tr("Bookings"), tooltip=hint("jobs.bookings", tr("GPUs that are kept for a time"))
        )
        self.as_list = button(tr("List"), tooltip=tr("All jobs as a table"))
        self.as_timeline = button(
            tr("Schedule"),
            tooltip=hint("jobs.timeline", tr("When jobs run, and where they will start")),
        )
        self.open_usage = button(
            tr("Usage"), tooltip=hint("jobs.usage", tr("What each person's jobs used"))
        )
        self.views = Segments(tr("View"), self.as_list, self.as_timeline, self.open_usage)
        self.view = choice_box(tr("View"), ("List", "Schedule", "Usage"))
        """The views where there is no room for their buttons."""
        self._panels: dict[QPushButton, Panel] = {
            self.open_groups: self.groups,
            self.open_bookings: self.bookings,
            self.open_usage: self.usage,
        }
        self.more = IconButton("more", tr("More"), tr("Schedule, groups, bookings and usage"))
        self.new = button(tr("New job"), kind="primary", tooltip=tr("Queue a command (Ctrl+N)"))
        for hidden in (self.several, self.more, self.form, *self._panels.values(), self.fold):
            hidden.hide()
        self._lay_out()
        self._connect()
        self.acts = self._bind()
        self.acts["jobs.timeline"].setCheckable(True)
        self.as_timeline.toggled.connect(self.acts["jobs.timeline"].setChecked)
        self.more.setMenu(menu_of(self.more, [self.acts[name] for name in MORE]))

    def refresh(self) -> None:
        """Show the newest snapshot."""
        snapshot = self._state.snapshot
        if snapshot is None:
            set_text(self.empty, self._state.link.text)
            self._stack.setCurrentIndex(1)
            self.details.hide()
            self.compared.hide()
            return
        self.table.tell_devices(len(snapshot.devices) > 1 or bool(snapshot.settings.clusters))
        self._fit()
        search = self._search
        if search is None:
            search = self._search = self.chooser.search(snapshot)
            self._history.start(history_search(search))
        if self.form.isVisible():
            self.form.show_snapshot(snapshot)
        for panel in self._panels.values():
            if panel.isVisible():
                panel.show_snapshot(snapshot)
        self._history.update(snapshot.jobs, snapshot.time)
        if self._history.short and not self._typing.isActive():
            self._typing.start()
        lines = self._listing.lines(snapshot, search, self._history)
        shown = self._arrangement.applied(lines, self._history)
        self.model.more = self._history.more and not self._typing.isActive()
        self.model.show_rows(shown)
        self.table.pin_active()
        beyond = (
            snapshot.waiting - sum(line.kind == WAITING for line in shown.active.values())
            if search == Search()
            else 0
        )
        searching = self._history.search is not None and not self._history.complete
        set_text(self.count, _count_text(len(lines), beyond, searching, self.model.more))
        empty = SEARCHING if searching else EMPTY if search == Search() else NOTHING_FOUND
        set_text(self.empty, tr(empty))
        self._stack.setCurrentIndex(0 if shown else 1)
        self.pause.setChecked(snapshot.paused)
        self.pause.setText(tr("Resume queue") if snapshot.paused else tr("Pause queue"))
        if shown.place(self._chosen) is None:
            inside = shown.head_of(self._chosen)
            self._chosen = inside or (shown.ids[0] if shown else None)
        self._refreshing = True
        self.choose(self._chosen)
        self._refreshing = False
        self._show_details()
        if self.as_timeline.isChecked():
            self._stack.setCurrentWidget(self.timeline)
            self.timeline.show_snapshot(snapshot, self._chosen)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
        QTimer.singleShot(0, self, self._show_chosen_row)  # once the table has its new height

    def _show_chosen_row(self) -> None:
        if self.table.currentIndex().isValid():
            self.table.scrollTo(self.table.currentIndex())

    def _fit(self) -> None:
        """Leave out of a narrow window what the menu and the palette have, too."""
        narrow = self.window().width() < max(theme.px(NARROW), NARROW)
        whole = self.details.whole_log.isChecked()
        roomy = self.width() >= theme.px(_VIEWS)
        self.views.setHidden(whole or not roomy)
        self.view.setHidden(whole or roomy)
        for opening in (self.open_groups, self.open_bookings):
            opening.setHidden(narrow or whole)
        self.more.setVisible(narrow and not whole)
        self.count.setHidden(narrow or not self.usage.isHidden())
        # where text is large, a narrow window has less room still
        self.pause.setHidden(whole or (narrow and self.width() < theme.px(_PAUSE)))
        self.details.narrow = narrow
        beside = self.width() >= theme.px(_BESIDE)
        side = Qt.Orientation.Horizontal if beside else Qt.Orientation.Vertical
        if side != self._parts.orientation():
            self._parts.setOrientation(side)
            self.details.arrange(beside=beside)
        self._divide()
        low = self.window().height() < _LOW
        if low != self.details.low:
            self.details.low = low
            self._show_details()
        self.details.fold(possible=not beside)

    def _divide(self) -> None:
        """Give the table its share, anew whenever another part is shown or there is other room.

        A splitter forgets the sizes of parts that are hidden while they are set.
        """
        beside = self._parts.orientation() == Qt.Orientation.Horizontal
        parts = (self.details, self.compared, self.form, *self._panels.values(), self.fold)
        shown = tuple(part.isVisibleTo(self._parts) for part in parts)
        divided = beside, shown, self._parts.size()
        if divided == self._divided:
            return
        self._divided = divided
        room = self._parts.width() if beside else self._parts.height()
        table = round(room * self._shares[beside])
        wide = any(panel.isVisibleTo(self._parts) for panel in (self.groups, self.bookings))
        if beside and not wide and beside not in self._moved:
            table = max(table, self.table.least_width() + 2 * theme.XS + 2)
        self._parts.setSizes([table, *[max(room - table, 0)] * len(parts)])

    def _keep_share(self) -> None:
        """Keep the share that the user gave to the table."""
        beside = self._parts.orientation() == Qt.Orientation.Horizontal
        sizes = self._parts.sizes()
        self._shares[beside] = sizes[0] / max(sum(sizes), 1)
        self._moved.add(beside)

    def choose(self, job: int | None) -> None:
        """Show the details of a job of the table."""
        self._chosen = job
        here, rows = self.table.currentIndex().row(), self.model.rows
        selected = self.table.selectionModel().hasSelection()  # Qt moves the current row of one
        if selected and 0 <= here < len(rows) and rows.ids[here] == job:  # that is removed, alone
            return
        at = -1 if (place := rows.place(job)) is None else place
        if at == here and (selected or at < 0):
            return
        self.table.selectionModel().setCurrentIndex(
            self.model.index(at, 0),
            QItemSelectionModel.SelectionFlag.ClearAndSelect
            | QItemSelectionModel.SelectionFlag.Rows,
        )

    def show_job(self, number: int) -> None:
        """Show a job even if the filter hides it, or it ended long ago."""
        self.chooser.clear()
        if self._job(number) is None:
            self._sought = number
            self._link.send(self, GetJob(number), self._show_found)
        elif (head := self.model.rows.head_of(number)) is not None and (
            number not in self.model.rows.indented
        ):
            self._toggle_fold(head)
        self.choose(number)
        self._show_details()

    def begin_job(self, device: str) -> None:
        """Open the form for a job on this device."""
        self._open_form(True)
        states = self._state.snapshot.devices if self._state.snapshot else ()
        self.form.choose_gpu(next(device_label(s.device) for s in states if s.device.id == device))

    def _show_found(self, job: Job) -> None:
        """Show a job of long ago, unless another one was asked for meanwhile."""
        if job.id == self._sought:
            self._sought = None
            self._history.add(job)
            self._chosen = job.id
            self.refresh()

    def _show_queued(self, number: int) -> None:
        self._chosen = number  # shown as soon as the snapshot has it
        self._open_form(False)

    def chosen(self) -> list[int]:
        """Return the selected rows from the top of the table down."""
        ranges = self.table.selectionModel().selection()
        return [
            self.model.rows.ids[at]
            for at in sorted(
                {at for one in ranges.toList() for at in range(one.top(), one.bottom() + 1)}
            )
        ]

    def _toggle_fold(self, number: int) -> None:
        self._arrangement.toggle(number)
        self.refresh()

    def _sort(self, order: SortOrder | None) -> None:
        self._arrangement.order = self.model.order = order
        self.model.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(HEADINGS) - 1)
        self.refresh()

    def _selected(self, kind: str) -> list[int]:
        """Return the selected jobs of a kind."""
        active = self.model.rows.active
        jobs = jobs_of(self.chosen(), self.model.rows)
        return [n for n in jobs if n in active and active[n].kind == kind]

    def _cancel(self) -> None:
        """Remove selected jobs that wait; ask before running ones are stopped."""
        if (snapshot := self._state.snapshot) is not None:
            found = (self._job(number) for number in self._selected(RUNNING))
            running = [job for job in found if job is not None]
            self.removal.request(self._selected(WAITING), running, snapshot.time)

    def _suspend(self) -> None:
        """Take the chosen job off its GPU, or have it come back."""
        job = self._job(self._chosen)
        if job is None or not isinstance(job.state, Running):
            return
        if suspension_of(job) is not None:
            self._link.send(self, ResumeJob(job.id), self._tell_suspended)
            return
        text = tr("Job {job} leaves its GPU; its memory moves to the machine's", job=job.id)
        self._link.announced.emit(Notice(text, seconds=4))
        self._link.send(self, SuspendJob(job.id), self._tell_suspended)

    def _tell_suspended(self, job: Job) -> None:
        """Announce what became of the job, with the way back."""
        text = tr("Job {job}: {state}", job=job.id, state=describe(job))
        suspension = suspension_of(job)
        back = NoticeAction(tr("Resume"), lambda: self._link.send(self, ResumeJob(job.id)))
        off = suspension is not None and suspension.resume_at is None
        self._link.announced.emit(Notice(text, (back,) if off else (), seconds=10))

    def _copy_command(self) -> None:
        if (job := self._job(self._chosen)) is not None:
            QGuiApplication.clipboard().setText(shlex.join(job.spec.argv))
            text = tr("The command of job {job} was copied", job=job.id)
            self._link.announced.emit(Notice(text, seconds=4))

    def _open_folder(self) -> None:
        if (job := self._job(self._chosen)) is not None and not job.spec.where:
            open_path(Path(job.spec.cwd))

    def _show_details(self) -> None:
        """Show the current job, or two selected jobs side by side."""
        if self._refreshing:
            return
        snapshot, chosen = self._state.snapshot, self.chosen()
        rows = self.model.rows
        active = len(rows.active.keys() & jobs_of(chosen, rows)) if len(chosen) > 1 else 0
        self.several.setVisible(active > 1)
        self.several.setText(tr("Cancel {n} jobs…", n=active))
        pair = (
            [job for number in chosen if (job := self._job(number)) is not None]
            if len(chosen) == 2
            else []
        )
        if snapshot is not None and len(pair) == 2:
            left, right = sorted(pair, key=lambda job: job.id)
            self.compared.show_jobs(left, right, snapshot)
        panels = (self.form, *self._panels.values())
        free = all(panel.isHidden() for panel in panels)
        self.compared.setVisible(len(pair) == 2 and free)
        job = self._job(self._chosen)
        line = None if self._chosen is None else rows.folds.get(self._chosen)
        self.fold.setVisible(line is not None and len(chosen) == 1 and free)
        if line is not None and snapshot is not None and self.fold.isVisibleTo(self):
            self.fold.show_fold(line, rows, self._job, snapshot.time)
        self.details.setVisible(job is not None and len(pair) != 2 and free)
        if job is not None and snapshot is not None:
            self.details.show_job(job, snapshot)
            if self.details.isVisibleTo(self):
                self.details.draw(job)
        self._enable_actions(job, active)
        self._divide()

    def _enable_actions(self, job: Job | None, active: int) -> None:
        """Offer only the actions that apply to the chosen job.

        Args:
            active: How many jobs are selected that have not ended, where there are several.
        """
        waits = job is not None and isinstance(job.state, Queued)
        runs = job is not None and job.active
        applies = {
            "job.cancel": runs or active > 0 or self.fold.isVisibleTo(self),
            "job.notify": runs,
            "job.suspend": job is not None and isinstance(job.state, Running),
            "job.folder": job is not None and not job.spec.where,
        }
        applies |= dict.fromkeys(("job.hold", "job.earlier", "job.later"), waits)
        one = ("job.repeat", "job.report", "job.copy", "job.template")
        applies |= dict.fromkeys(one, job is not None)
        for name, wanted in applies.items():
            self.acts[name].setEnabled(wanted)

    def _choose_in_timeline(self, number: int) -> None:
        """Show a job of the timeline, which the filter of the table may hide."""
        if self.model.rows.place(number) is None:
            self.show_job(number)
        self.choose(number)
        self.refresh()

    def _choose(self, current: QModelIndex) -> None:
        if current.isValid():
            self._chosen = self.model.rows.ids[current.row()]
            self._show_details()

    def _move(self, step: int) -> None:
        """Swap the chosen job with the one above it (-1) or below it (1), at the same priority."""
        rows = self.model.rows
        at = rows.place(self._chosen)
        if at is not None and 0 <= at + step < len(rows) and can_swap(rows[at], rows[at + step]):
            self._link.send(self, Move(rows[at].id, rows[at + step].id, step > 0))

    def _repeat(self, number: int, changes: dict[str, Any], artefacts: bool) -> None:
        request = RepeatJobs((number,), changes, artefacts)
        self._link.send(self, request, self._choose_new)

    def _retry_failed(self, numbers: tuple[int, ...]) -> None:
        self._link.send(self, RepeatJobs(numbers), self._choose_new)

    def _choose_new(self, jobs: tuple[Job, ...]) -> None:
        self._chosen = jobs[0].id  # shown as soon as the snapshot has it

    def _job(self, number: int | None) -> Job | None:
        return self._state.job(number) or (None if number is None else self._history.job(number))

    def _search_again(self) -> None:
        """Apply the filter to known jobs now, and search the others when the user stops typing."""
        self._search = None
        self._typing.start()
        self.refresh()

    def _load_further(self) -> None:
        """Request more of the history, as the user came to the end of the table."""
        self._history.extend()
        self._load_page()

    def _load_page(self) -> None:
        """Request the next page of the history."""
        if (request := self._history.next_request()) is not None:
            self.model.more = False
            self._link.send(
                self,
                request,
                lambda found: self._take_page(request, *found),
                self._fail_page,
                background=True,
            )

    def _take_page(self, request: SearchJobs, jobs: tuple[Job, ...], before: int | None) -> None:
        self._history.take(request, jobs, before)
        self.refresh()
        # waiting jobs are in order, and arrays are counted: a missing page would be a gap
        if any(job.active for job in jobs) or self._history.cuts_array or self._history.short:
            self._load_page()

    def _fail_page(self, message: str) -> None:
        self._history.fail()
        if self._state.link.connected:
            self._link.failed.emit(message)

    def _use_template(self) -> None:
        """Open the form with what the chosen job had."""
        if (job := self._job(self._chosen)) is not None:
            self._open_form(True)
            self.form.fill(job.spec)

    def _open_panel(self, panel: Panel, wanted: bool) -> None:
        """Show or hide a panel in place of the chosen job."""
        self.details.leave_whole_log()
        for other in (self.form, *self._panels.values()):
            other.setVisible(wanted and other is panel)
        if wanted and panel is self.usage:
            self.as_timeline.setChecked(False)
        self._mark_view()
        self._show_details()
        if wanted and (snapshot := self._state.snapshot) is not None:
            panel.show_snapshot(snapshot)
            panel.setFocus()
        elif not wanted:
            self.table.setFocus()

    def _turn_view(self, timeline: bool) -> None:
        """Show the queue as a timeline, or as a table."""
        if timeline and not self.usage.isHidden():
            self._open_panel(self.usage, False)
        self.refresh()
        self._mark_view()

    def _show_list(self) -> None:
        self.as_timeline.setChecked(False)
        self._open_panel(self.usage, False)

    def _choose_view(self, at: int) -> None:
        made = (self.as_list, self.as_timeline, self.open_usage)[at]
        if not made.isChecked():
            made.click()

    def _mark_view(self) -> None:
        """Mark which view is shown; the usage takes the whole page."""
        usage, whole = not self.usage.isHidden(), self.details.whole_log.isChecked()
        self.open_usage.setChecked(usage)
        self.as_list.setChecked(not usage and not self.as_timeline.isChecked())
        buttons = (self.as_list, self.as_timeline, self.open_usage)
        self.view.setCurrentIndex([made.isChecked() for made in buttons].index(True))
        self._top.setHidden(usage or whole)
        self.chooser.setHidden(usage or whole)
        self.count.setHidden(usage or whole)
        aside = any(not p.isHidden() for p in (self.form, self.groups, self.bookings))
        theme.mark(self.table, "aside", "true" if aside else "")

    def _toggle_log(self) -> None:
        """Show the log full-screen, or the page again; not where no log is shown."""
        if self.details.isVisible():
            self.details.whole_log.click()

    def _find(self) -> None:
        """Go to the filter, or to the search in the log where that is full-screen."""
        whole = self.details.whole_log.isChecked()
        if whole:
            self.details.find_in_log()
        else:
            self.filter.setFocus()

    def _show_whole_log(self, whole: bool) -> None:
        """Give the log the whole page, and the whole screen."""
        for part in (*self._above, self._top):
            part.setVisible(not whole)
        self._fit()
        window = self.window()
        window.setWindowState(
            window.windowState() | Qt.WindowState.WindowFullScreen
            if whole
            else window.windowState() & ~Qt.WindowState.WindowFullScreen
        )

    def _open_form(self, wanted: bool) -> None:
        """Show or hide the form in place of the chosen job."""
        self.details.leave_whole_log()
        for panel in self._panels.values():
            panel.hide()
        self.form.setVisible(wanted)
        self._mark_view()
        self._show_details()
        if wanted:
            self.form.begin(self._state.snapshot)
        else:
            self.table.setFocus()

    def _connect(self) -> None:
        link = self._link
        self.chooser.changed.connect(self._search_again)
        self.model.end_reached.connect(self._load_further)
        self.model.moved.connect(lambda *where: link.send(self, Move(*where)))
        self.table.toggled.connect(self._toggle_fold)
        self.table.sorted_by.connect(self._sort)
        self.table.menu_wanted.connect(lambda at: show_menu(self, self.acts, MENU, at))
        self.table.selectionModel().currentRowChanged.connect(self._choose)
        self.table.selectionModel().selectionChanged.connect(self._show_details)
        self.as_list.clicked.connect(self._show_list)
        self.view.activated.connect(self._choose_view)
        self.as_timeline.toggled.connect(self._turn_view)
        self.timeline.chosen.connect(self._choose_in_timeline)
        self.pause.clicked.connect(lambda on: link.send(self, Pause(on)))
        self.several.clicked.connect(self._cancel)
        for opening, panel in self._panels.items():
            opening.clicked.connect(lambda _, p=panel: self._open_panel(p, p.isHidden()))
            panel.closed.connect(lambda p=panel: self._open_panel(p, False))
        self.new.clicked.connect(lambda: self._open_form(True))
        self.form.closed.connect(lambda: self._open_form(False))
        self.form.queued.connect(self._show_queued)
        self.fold.cancelled.connect(self._cancel)
        self.fold.retried.connect(self._retry_failed)
        self.fold.toggled.connect(lambda: self._toggle_fold(self._chosen or 0))
        self.removal.left.connect(self.table.setFocus)
        self.details.repeated.connect(self._repeat)
        self.details.moved.connect(self._move)
        self.details.cancelled.connect(self._cancel)
        self.details.enlarged.connect(self._show_whole_log)
        self.details.changed.connect(self._show_details)

    def _bind(self) -> dict[str, QAction]:
        return bind_actions(
            self,
            {
                "job.new": self.new.click,
                "job.cancel": self._cancel,
                "job.undo": self.removal.undo,
                "job.repeat": self.details.again.click,
                "job.report": self.details.report.click,
                "job.copy": self._copy_command,
                "job.folder": self._open_folder,
                "job.hold": self.details.hold.click,
                "job.suspend": self._suspend,
                "job.earlier": self.details.earlier.click,
                "job.later": self.details.later.click,
                "job.template": self._use_template,
                "job.notify": self.details.notify.click,
                "job.log": self._toggle_log,
                "job.details": self.details.more.click,
                "jobs.pause": self.pause.click,
                "jobs.groups": self.open_groups.click,
                "jobs.bookings": self.open_bookings.click,
                "jobs.usage": self.open_usage.click,
                "jobs.timeline": self.as_timeline.click,
                "jobs.search": self._find,
                "log.search": self.details.find_in_log,
                "log.next": self.details.output.forth.click,
                "log.previous": self.details.output.back.click,
            },
        )

    def _lay_out(self) -> None:
        buttons = (self.open_groups, self.open_bookings, self.more, self.pause, self.new)
        self._above = (self.views, self.view, self.chooser, *buttons)
        found = (Stretch(self.chooser, 1000), self.count, Stretch())
        bar = row(self.views, self.view, *found, self.several, *buttons, spacing=theme.M)
        top, self._stack = list_card(self.table, self.empty)
        self._stack.addWidget(self.timeline)
        self._top = top
        both = QSplitter(Qt.Orientation.Vertical)
        both.setChildrenCollapsible(False)
        both.setHandleWidth(theme.S)
        top.setMinimumHeight(height_of_rows(self.table, _LEAST_ROWS) + 2 * theme.XS + 2)
        both.addWidget(top)
        both.addWidget(self.details)
        both.addWidget(self.compared)
        both.addWidget(self.form)
        for panel in self._panels.values():
            both.addWidget(panel)
        both.addWidget(self.fold)
        both.splitterMoved.connect(self._keep_share)
        self._parts = both
        self.setLayout(column(bar, self.asking, Stretch(both)))
        self._mark_view()


def _count_text(listed: int, beyond: int, searching: bool, more: bool) -> str:
    """Return how many jobs are listed, and whether there are others.

    Args:
        beyond: How many more wait.
        searching: Not all jobs that match have been found.
        more: The next ones are found when the user comes to the end of the list.
    """
    if searching and more:
        parts = [tr_count("{n} job listed, more below", "{n} jobs listed, more below", listed)]
    elif searching:
        parts = [tr_count("{n} job, searching…", "{n} jobs, searching…", listed)]
    else:
        parts = [tr_count("{n} job", "{n} jobs", listed)]
    if beyond > 0:
        parts.append(tr_count("{n} more waits", "{n} more wait", beyond))
    return ", ".join(parts)
