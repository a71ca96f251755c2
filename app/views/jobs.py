"""The jobs page: the table on top, the chosen job below."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QAbstractItemView, QComboBox, QHeaderView, QSplitter, QStackedLayout, QTableView, QVBoxLayout, QWidget

from app import theme
from app.models.format import plural
from app.models.job_list import EVERY, KINDS, WAITING, Listing
from app.models.requests import Cancel, Hold, Move, Pause, Refused, Repeat, Reply, Submitted, Tail, Tailed, Timeline, Told
from app.models.state import State
from app.views.filter_box import filter_box
from app.views.job_compare import JobCompare
from app.views.job_details import JobDetails
from app.views.job_table import HEADINGS, PROGRESS, WIDTHS, JobTable, ProgressDelegate
from app.views.whole_rows import WholeRows
from app.views.widgets import button, card, label, row, set_text

EMPTY = "No jobs yet. Start one on the Workloads page (Ctrl+3), or from a terminal:  gpudeck submit -- python train.py"
NOTHING_FOUND = "No job matches the filter."


class Jobs(QWidget):
    """Emits `requested` with what the daemon is to do."""

    requested = Signal(object)

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._chosen: int | None = None
        self.filter = filter_box("Search names, commands, notes, tags (Ctrl+F)")
        self.filter.textChanged.connect(self.refresh)
        self.kinds = QComboBox()
        self.kinds.addItems([EVERY, *KINDS])
        self.kinds.setAccessibleName("State")
        self.kinds.currentIndexChanged.connect(self.refresh)
        self._listing = Listing()
        self.count = label(size="small", meaning="muted")
        self.pause = button("Pause queue", tooltip="Start nothing new; running jobs run on", checkable=True)
        self.pause.clicked.connect(lambda on: self.requested.emit(Pause(on)))
        self.model = JobTable()
        self.table = _table(self.model)
        self.table.selectionModel().currentRowChanged.connect(self._choose)
        self.empty = label(EMPTY, meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.table.selectionModel().selectionChanged.connect(self._show_details)
        self.details, self.compared = JobDetails(), JobCompare()
        self.details.cancelled.connect(lambda job: self.requested.emit(Cancel(job)))
        self.details.repeated.connect(self._again)
        self.details.held.connect(lambda job, held: self.requested.emit(Hold(job, held)))
        self.details.moved.connect(self._move)
        self.details.wanted.connect(self.requested)
        self._lay_out()
        for keys, slot in (
            ("Del", self.details.cancel.click),
            ("Ctrl+R", self.details.again.click),
            ("Ctrl+F", self.filter.setFocus),
            ("Ctrl+Shift+F", self.details.output.box.setFocus),
            ("Ctrl+H", self.details.hold.click),
            ("Alt+Up", self.details.earlier.click),
            ("Alt+Down", self.details.later.click),
            ("F3", self.details.output.forth.click),
            ("Shift+F3", self.details.output.back.click),
        ):
            QShortcut(QKeySequence(keys), self, slot)

    def refresh(self) -> None:
        snapshot = self._state.snapshot
        if snapshot is None:
            set_text(self.empty, self._state.link.text)
            self._stack.setCurrentIndex(1)
            self.details.hide()
            self.compared.hide()
            return
        shown = self._listing.lines(snapshot, self.filter.text(), self.kinds.currentText())
        self.model.show_rows(shown)
        total = plural(len(snapshot.jobs), "job")
        set_text(self.count, total if len(shown) == len(snapshot.jobs) else f"{len(shown)} of {total}")
        set_text(self.empty, NOTHING_FOUND if snapshot.jobs else EMPTY)
        self._stack.setCurrentIndex(0 if shown else 1)
        self.pause.setChecked(snapshot.paused)
        self.pause.setText("Queue is paused: resume" if snapshot.paused else "Pause queue")
        if all(r.id != self._chosen for r in shown):
            self._chosen = shown[0].id if shown else None
        self.choose(self._chosen)
        self._show_details()

    def choose(self, job: int | None) -> None:
        """Show the details of a job of the table."""
        self._chosen = job
        at = next((i for i, r in enumerate(self.model.rows) if r.id == job), -1)
        if at == self.table.currentIndex().row():
            return
        self.table.selectionModel().setCurrentIndex(
            self.model.index(at, 0),
            QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows,
        )

    def show_job(self, number: int) -> None:
        """Show the details of a job, whatever the filter hides."""
        self.filter.clear()
        self.kinds.setCurrentText(EVERY)
        self.choose(number)
        self._show_details()

    def deliver(self, reply: Reply) -> None:
        match reply:
            case Tailed():
                self.details.add_log(reply)
            case Refused(request=Tail()):
                self.details.log_failed()
            case Told() if self.details.add_events(reply):
                self._show_details()
            case Refused(request=Timeline()):
                self.details.events_failed()
            case Submitted(job=job):
                self._chosen = job.id  # shown as soon as the snapshot has it

    def chosen(self) -> list[int]:
        """The jobs that are selected, from the top of the table down."""
        return [self.model.rows[at].id for at in sorted(index.row() for index in self.table.selectionModel().selectedRows())]

    def _show_details(self) -> None:
        """Of the current job; of two that are selected, both side by side."""
        snapshot, pair = self._state.snapshot, [job for number in self.chosen() if (job := self._state.job(number)) is not None]
        if snapshot is not None and len(pair) == 2:
            left, right = sorted(pair, key=lambda job: job.id)
            self.compared.show_jobs(left, right, snapshot)
        self.compared.setVisible(len(pair) == 2)
        job = self._state.job(self._chosen)
        self.details.setVisible(job is not None and len(pair) != 2)
        if job is not None and snapshot is not None:
            self.details.show_job(job, snapshot)

    def _choose(self, current: QModelIndex) -> None:
        if current.isValid():
            self._chosen = self.model.rows[current.row()].id
            self._show_details()

    def _move(self, step: int) -> None:
        """Let the chosen job change places with the one that waits above it (-1) or below it (1)."""
        waiting = [line.id for line in self.model.rows if line.kind == WAITING]
        if self._chosen in waiting and 0 <= (at := waiting.index(self._chosen) + step) < len(waiting):
            self.requested.emit(Move(self._chosen, waiting[at], step > 0))

    def _again(self, number: int) -> None:
        if (job := self._state.job(number)) is not None:
            self.requested.emit(Repeat(job.spec))

    def _lay_out(self) -> None:
        bar = row(self.filter, self.kinds, self.count, self.pause, spacing=theme.M)
        bar.insertStretch(3, 1)
        stack = QWidget()
        self._stack = QStackedLayout(stack)
        self._stack.addWidget(WholeRows(self.table))
        self._stack.addWidget(self.empty)
        inner = QVBoxLayout()
        inner.addWidget(stack)
        top = card(inner)
        inner.setContentsMargins(1, theme.XS, 1, theme.XS)
        both = QSplitter(Qt.Orientation.Vertical)
        both.setChildrenCollapsible(False)
        both.addWidget(top)
        both.addWidget(self.details)
        both.addWidget(self.compared)
        both.setSizes([280, 320, 320])
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(bar)
        layout.addWidget(both, 1)


def _table(model: JobTable) -> QTableView:
    table = QTableView()
    table.setModel(model)
    table.setItemDelegateForColumn(PROGRESS, ProgressDelegate(table))
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
    table.setShowGrid(False)
    table.setTabKeyNavigation(False)
    table.setWordWrap(False)
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(30)
    table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    header = table.horizontalHeader()
    header.setHighlightSections(False)
    header.setSectionsClickable(False)
    for at in range(len(HEADINGS)):
        if WIDTHS[at]:
            header.resizeSection(at, WIDTHS[at])
        header.setSectionResizeMode(at, QHeaderView.ResizeMode.Interactive if WIDTHS[at] else QHeaderView.ResizeMode.Stretch)
    table.setAccessibleName("Jobs")
    table.setAccessibleDescription("Select two jobs to see them side by side")
    return table
