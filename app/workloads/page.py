"""Choose a workload, fill in its form, run it, and read its result."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QScrollArea,
    QSizePolicy,
    QWidget,
)

from accel.workloads.catalog import WORKLOADS, find
from app.format.job_rows import device_labels, job_row
from app.format.results import earlier_results, result_of, summarize_result
from app.format.values import significant
from app.link.link import Link
from app.state import State
from app.widgets import theme
from app.widgets.controls import (
    Stretch,
    button,
    card,
    choice_box,
    clear_panel,
    column,
    empty_label,
    label,
    row,
    rule,
    set_text,
    set_up_scroll,
    show_if_any,
)
from app.workloads.form import WorkloadForm
from app.workloads.form_view import WorkloadFormView
from app.workloads.result_bars import ResultBars
from app.workloads.result_card import ActiveJobCard, ResultCard
from app.workloads.result_export import SaveResult
from app.workloads.used_shapes import UsedShapes
from app.workloads.used_shapes_view import UsedShapesView
from app.workloads.workload_choice import WorkloadChoice
from scheduler.protocol.jobs import Done, Failed, Job
from scheduler.protocol.search import ENDED, NEWEST, Search
from scheduler.protocol.snapshot import Snapshot
from scheduler.verbs.jobs import FindJobs, GetJob, Page

EMPTY = (
    "This workload has not run yet. "
    "Fill in the form and choose Run to see progress and results here."
)
OF_ATTENTION = ("attention", "tune", "compare", "validate")
"""The workloads beside which the shapes of the user's own programs stand."""
CEILINGS = ("gemm", "copy")
"""The workloads that measure the ceilings of a roofline."""
_MOST_WHOLE = 4
REPLAY = (
    "A REPLAY shows the past and cannot run workloads. To run on this machine: "
    "gpudeck daemon start --source auto"
)
_WIDE = 1000
"""Pixels of the page from which on the workloads are a list; else a box above the form."""
_ROOMY = 900
"""Pixels of height that earlier results need below a chart."""
_LIST, _FORM, _NARROW_FORM = 184, 320, 252
"""Pixels of the list of workloads and of the form."""
SEARCHING = "Searching for earlier results…"
_WIDEST_RESULT, _EMPTY_HEIGHT = 1400, 96


class WorkloadsPage(QWidget):
    """Run workloads, and show and save their results."""

    code_opened = Signal()
    """The user wants to accelerate code of their own."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._views: dict[tuple[str, str], WorkloadFormView] = {}
        self.name = WORKLOADS[0].name
        self.choices = {w.name: WorkloadChoice(w.title, w.summary) for w in WORKLOADS}
        self.box = choice_box("Workload", [w.title for w in WORKLOADS])
        self.box.activated.connect(lambda at: self.choose(WORKLOADS[at].name))
        group = QButtonGroup(self)
        for name, made in self.choices.items():
            group.addButton(made)
            made.clicked.connect(lambda _=False, n=name: self.choose(n))
        self.summary = label(meaning="muted", wrap=True)
        self.estimate = label(meaning="muted", wrap=True)
        self.run = button("Run", kind="primary", tooltip="Queue it as a job (Ctrl+Return)")
        self.run.setShortcut("Ctrl+Return")
        self.run.clicked.connect(self._submit)
        self.code = button(
            "Your code…",
            self.code_opened.emit,
            kind="nav",
            tooltip="Find attention in your own code, and link the accelerated one in",
        )
        self.active, self.result = ActiveJobCard(), ResultCard()
        self.result.saved.connect(self._save)
        self.result.cells.viewed.connect(self._show_past)
        self._whole: dict[int, Job] = {}
        """The jobs with results that are too large for a snapshot, once they were loaded."""
        self._fetching: set[int] = set()
        self._earlier: dict[str, tuple[Job, ...]] = {}
        """Ended jobs of a workload that are too old for a snapshot, once they were searched for."""
        self._seeking: set[str] = set()
        """The workloads whose earlier jobs are being searched for."""
        self.empty = empty_label(EMPTY)
        self.bars = ResultBars()
        self.past = label("Earlier results, TFLOP/s", strong=True)
        self.used, self.used_view = UsedShapes(), UsedShapesView()
        self._lay_out()
        self.choose(self.name)

    def choose(self, name: str) -> None:
        """Show the form of this workload as the user left it."""
        self.name = name
        self.choices[name].setChecked(True)
        self.box.setCurrentIndex(list(self.choices).index(name))
        set_text(self.summary, find(name).summary)
        self.refresh()

    @property
    def form(self) -> WorkloadFormView:
        """Return the form that is shown."""
        key = self.name, self._state.device_kind
        if key not in self._views:
            view = self._views[key] = WorkloadFormView(
                WorkloadForm(find(self.name), self._state.device_kind)
            )
            view.changed.connect(self._check)
            self._forms.addWidget(view)
        return self._views[key]

    def refresh(self) -> None:
        """Show the form and the newest jobs of the workload."""
        form = self.form
        for view in self._views.values():
            view.setVisible(view is form)
        self._check()
        snapshot = self._state.snapshot
        mine = self._jobs(self.name)
        active = next((j for j in mine if j.active), None)
        ended = next((j for j in mine if not j.active), None)
        if snapshot is not None:
            if ended is None and self.name not in self._earlier:
                self._seek(self.name)
            if active is not None:
                self.active.show_job(job_row(active, device_labels(snapshot), snapshot.time))
            if ended is not None:
                self._show_result(ended, snapshot)
            for name, choice in self.choices.items():
                newest = earlier_results(self._jobs(name), name, snapshot.time, 1)
                choice.show_rate(significant(newest[0].tflops) if newest else "")
            self.bars.show_bars(earlier_results(mine, self.name, snapshot.time)[::-1])
        self.active.setVisible(active is not None)
        self.result.setVisible(ended is not None)
        self._rule.setVisible(active is not None and ended is not None)
        set_text(self.empty, SEARCHING if self.name in self._seeking else EMPTY)
        if self.used.refresh():
            self.used_view.show_rows(self.used.rows)
            show_if_any(self._unread, self.used.problem)
        told = bool(self.used.rows or self.used.problem)
        self._used.setVisible(self.name in OF_ATTENTION and told)
        self.empty.setVisible(not mine)
        self._show_past()

    def _jobs(self, name: str) -> list[Job]:
        """Return the known jobs of a workload, the newest first."""
        snapshot = self._state.snapshot
        shown = snapshot.jobs if snapshot is not None else ()
        known = {job.id: job for job in (*self._earlier.get(name, ()), *shown)}
        found = (job for job in known.values() if job.spec.workload == name)
        return sorted(found, key=lambda job: -job.id)

    def _seek(self, name: str, before: int = NEWEST) -> None:
        """Search for ended jobs of a workload that are too old for a snapshot."""
        if before == NEWEST and name in self._seeking:
            return
        self._seeking.add(name)
        self._link.send(
            self,
            FindJobs(Search(find(name).module, ENDED), before),
            lambda page: self._take_earlier(name, page),
            lambda _: self._seeking.discard(name),
            background=True,
        )

    def _take_earlier(self, name: str, page: Page) -> None:
        """Take a page of the search, which is complete once it holds a job of the workload."""
        found = tuple(job for job in page.jobs if job.spec.workload == name)
        if not found and page.before is not None:
            self._seek(name, page.before)
            return
        self._earlier[name] = found
        self._seeking.discard(name)
        self.refresh()

    def _show_whole(self, job: Job) -> None:
        self._fetching.discard(job.id)
        self._whole = dict([*self._whole.items(), (job.id, job)][-_MOST_WHOLE:])
        self.refresh()

    def _save(self, job: int, file: str) -> None:
        self._link.send(
            self,
            SaveResult(job, file),
            lambda _: self._link.announce_file("Result", file),
            self.result.show_note,
        )

    def _show_past(self) -> None:
        """Hide the earlier results if a chart leaves no room for them."""
        charted = self.result.isVisibleTo(self) and self.result.charted
        self._past.setVisible(len(self.bars.bars) > 1 and not (charted and self.height() < _ROOMY))
        policy = QSizePolicy.Policy
        self._last.setSizePolicy(policy.Preferred, policy.Expanding if charted else policy.Maximum)
        for at, takes in enumerate((charted, not charted, False, False)):
            self._results.setStretch(at, int(takes))

    def _show_result(self, job: Job, snapshot: Snapshot) -> None:
        """Show the result of a job; load a large one, and show its headline until it is there."""
        if (
            isinstance(job.state, Done | Failed)
            and job.state.large
            and job.id not in {*self._whole, *self._fetching}
        ):
            self._fetching.add(job.id)
            self._link.send(self, GetJob(job.id), self._show_whole, self.result.show_note)
        job = self._whole.get(job.id, job)
        self.result.show_job(
            job_row(job, device_labels(snapshot), snapshot.time), summarize_result(job)
        )
        result = result_of(job)
        others = (
            r
            for j in snapshot.jobs
            if j.spec.workload in CEILINGS and (r := result_of(j)) is not None
        )
        self.result.show_cells(result if result is not None and result.cells else None, others)

    def _check(self) -> None:
        right = self.form.check()
        self.run.setEnabled(right and self._state.device_kind != "replay")
        if self._state.device_kind == "replay":
            set_text(self.estimate, REPLAY)
        else:
            set_text(
                self.estimate,
                self.form.form.estimate() or "Correct the fields that are marked in red.",
            )

    def _submit(self) -> None:
        form = self.form.form
        request = form.submission()
        self._link.send(self, request, lambda _: form.answered(request))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange(wide=self.width() >= theme.px(_WIDE))
        super().resizeEvent(event)

    def _arrange(self, *, wide: bool) -> None:
        """List the workloads beside the form, or offer them above it where the page is narrow."""
        self._list.setVisible(wide)
        self.box.setVisible(not wide)
        self._short_code.setVisible(not wide)
        self._form_card.setFixedWidth(theme.px(_FORM if wide else _NARROW_FORM))
        # the page scrolls the whole form, which else scrolls by itself; Run stays in sight
        policy = QSizePolicy.Policy
        self._parameters.setSizePolicy(policy.Expanding, policy.Expanding if wide else policy.Fixed)
        self.result.facts.setSizePolicy(policy.Expanding, policy.Maximum if wide else policy.Fixed)
        body = self._form_body
        if (body.indexOf(self._send) > body.indexOf(self._parameters)) != wide:
            body.removeWidget(self._send)
            body.insertWidget(body.indexOf(self._parameters) + wide, self._send)

    def _lay_out(self) -> None:
        self._short_code = button("Code…", self.code_opened.emit, tooltip=self.code.toolTip())
        listed = column(*self.choices.values(), rule(), self.code, Stretch(), spacing=2)
        self._list = clear_panel(listed)
        self._list.setFixedWidth(theme.px(_LIST))
        self._forms = column()
        self._forms.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._parameters = _FormArea(clear_panel(self._forms))
        chosen = row(Stretch(self.box), self._short_code)
        self._send = clear_panel(column(self.estimate, self.run, spacing=theme.S))
        self._form_body = column(
            chosen, self.summary, Stretch(self._parameters), self._send, spacing=theme.M
        )
        self._form_card = card(self._form_body)
        self._rule = rule()
        self.empty.setMinimumHeight(_EMPTY_HEIGHT)
        self._last = card(
            column(self.active, self._rule, Stretch(self.result), self.empty, spacing=theme.L)
        )
        self._past = card(column(self.past, Stretch(self.bars)))
        policy = QSizePolicy.Policy
        self._past.setSizePolicy(policy.Preferred, policy.Maximum)
        title = label("Attention shapes that your programs used", strong=True)
        self._unread = label(meaning="failed", wrap=True)
        self._used = card(column(title, self._unread, Stretch(self.used_view)))
        self._used.setSizePolicy(policy.Preferred, policy.Maximum)
        results = QWidget()
        results.setMaximumWidth(theme.px(_WIDEST_RESULT))
        self._results = column(self._last, self._past, self._used, Stretch())
        results.setLayout(self._results)
        panes = row(Stretch(), self._list, self._form_card, Stretch(results, 1000), Stretch())
        panes.setSpacing(theme.M)
        panes.setAlignment(self._form_card, Qt.AlignmentFlag.AlignTop)
        self.setLayout(panes)


class _FormArea(QScrollArea):
    """Be as high as the form, so that Run follows the last field."""

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self._content = content
        set_up_scroll(self, content, "Parameters")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.updateGeometry()  # its lines may wrap elsewhere

    def sizeHint(self) -> QSize:
        hint, width = self._content.sizeHint(), self.viewport().width()
        return QSize(hint.width(), max(hint.height(), self._content.heightForWidth(width)))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()  # another form is shown now
        return super().eventFilter(watched, event)
