"""Choose a workload, fill in its form, run it, and read its result."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QButtonGroup,
    QScrollArea,
    QSizePolicy,
    QWidget,
)

from gpudeck.accel.workloads.catalog import WORKLOADS, find
from gpudeck.app.format.job_rows import device_labels, job_row
from gpudeck.app.format.results import earlier_results, result_of, summarize_result
from gpudeck.app.format.values import significant
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    NO_LIMIT,
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
from gpudeck.app.workloads.form import WorkloadForm
from gpudeck.app.workloads.form_view import WorkloadFormView
from gpudeck.app.workloads.result_bars import ResultBars
from gpudeck.app.workloads.result_card import ActiveJobCard, ResultCard
from gpudeck.app.workloads.result_export import SaveResult
from gpudeck.app.workloads.scale_view import ScaleView
from gpudeck.app.workloads.search_view import SearchView
from gpudeck.app.workloads.trained import FindTrained, leaves_model
from gpudeck.app.workloads.used_shapes import KINDS, UsedShapes
from gpudeck.app.workloads.used_shapes_view import UsedShapesView
from gpudeck.app.workloads.workload_choice import WorkloadChoice
from gpudeck.extras import missing_of
from gpudeck.scheduler.protocol.jobs import Done, Failed, Job
from gpudeck.scheduler.protocol.search import ENDED, NEWEST, Search
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.jobs import FindJobs, GetJob, Page

EMPTY = tr_noop(
    "This workload has not run yet. "
    "Fill in the form and choose Run to see progress and results here."
)
USED_BY = {
    **dict.fromkeys(("attention", "tune", "compare", "validate"), "attention"),
    "gemm": "gemm",
}
"""The workloads beside which shapes of the user's own programs stand, and of which operation."""
CEILINGS = ("gemm", "copy")
"""The workloads that measure the ceilings of a roofline."""
_MOST_WHOLE = 4
SEARCH = "search"
"""The workload whose result is shown with all that it tried."""
DIVIDED = "distributed"
"""The workload beside which the model of more GPUs stands."""
REPLAY = tr_noop(
    "A recording cannot run workloads. To run them on this machine, choose Automatic as the source "
    "in the settings."
)
_WIDE = 1000
"""Pixels of width of the page from which on the workloads are a list and the form is always
shown; else they are a box, and the form opens above the result."""
_WIDEST = 1900
"""Pixels of width from which on earlier results stand beside the newest, with all its charts."""
_ROOMY = 900
"""Pixels of height that earlier results need below a chart."""
_LIST, _FORM, _SPREAD = 184, 320, 640
"""Pixels of the list of workloads, of the form, and of a form with its groups side by side."""
_LEAST_CODE = 420
"""Pixels of width below which the palette alone leads to the user's code."""
SEARCHING = tr_noop("Searching for earlier results…")
_EMPTY_HEIGHT = 96


class WorkloadsPage(QWidget):
    """Run workloads, and show and save their results."""

    code_opened = Signal()
    """The user wants to accelerate code of their own."""
    model_tried = Signal(str)
    """The user wants to try a trained model; carries its folder."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._views: dict[tuple[str, str], WorkloadFormView] = {}
        self.name = WORKLOADS[0].name
        self.choices = {w.name: WorkloadChoice(tr(w.title), tr(w.summary)) for w in WORKLOADS}
        self.box = choice_box(tr("Workload"), [w.title for w in WORKLOADS])
        self.box.activated.connect(lambda at: self.choose(WORKLOADS[at].name))
        group = QButtonGroup(self)
        for name, made in self.choices.items():
            group.addButton(made)
            made.clicked.connect(lambda _=False, n=name: self.choose(n))
        self.summary = label(meaning="muted", wrap=True)
        self.estimate = label(meaning="muted", wrap=True)
        self.run = button(tr("Run"), kind="primary", tooltip=tr("Queue it as a job (Ctrl+Return)"))
        self.run.setShortcut("Ctrl+Return")
        self.run.clicked.connect(self._submit)
        self.code = button(
            tr("Your code…"),
            self.code_opened.emit,
            kind="nav",
            tooltip=tr("Find attention in your own code, and link the accelerated one in"),
        )
        self.parameters = button(tr("Parameters"), self._toggle_form, checkable=True)
        self._form_wanted: bool | None = None
        """The user opened or closed the form of a narrow page; None: it is open without result."""
        self.active, self.result, self.search = ActiveJobCard(), ResultCard(), SearchView(link)
        self.result.saved.connect(self._save)
        self.result.tried.connect(self._try)
        self.result.cells.viewed.connect(self._show_past)
        self._whole: dict[int, Job] = {}
        """The jobs with results that are too large for a snapshot, once they were loaded."""
        self._fetching: set[int] = set()
        self._shown = 0
        """The job whose result, or failure, is shown."""
        self._earlier: dict[str, tuple[Job, ...]] = {}
        """Ended jobs of a workload that are too old for a snapshot, once they were searched for."""
        self._seeking: set[str] = set()
        """The workloads whose earlier jobs are being searched for."""
        self.empty = empty_label(tr(EMPTY))
        self.bars = ResultBars()
        self.past = label(tr("Earlier results, TFLOP/s"), strong=True)
        self.used = {operation: UsedShapes(operation) for operation in KINDS}
        self.used_view = UsedShapesView()
        self.scale = ScaleView()
        self._lay_out()
        self.choose(self.name)

    def choose(self, name: str) -> None:
        """Show the form of this workload as the user left it."""
        self.name = name
        self.choices[name].setChecked(True)
        self.box.setCurrentIndex(list(self.choices).index(name))
        set_text(self.summary, tr(find(name).summary))
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
                self._shown = ended.id
            for name, choice in self.choices.items():
                newest = earlier_results(self._jobs(name), name, snapshot.time, 1)
                choice.show_rate(significant(newest[0].tflops) if newest else "")
            self.bars.show_bars(earlier_results(mine, self.name, snapshot.time)[::-1])
        self.active.setVisible(active is not None)
        self.result.setVisible(ended is not None)
        self.search.show_job(ended if self.name == SEARCH else None)
        self._rule.setVisible(active is not None and ended is not None)
        set_text(self.empty, tr(SEARCHING if self.name in self._seeking else EMPTY))
        self._show_used()
        self._open_form()
        self.empty.setVisible(not mine)
        self._show_past()
        beside = (self._past, self._used, self._scaled)
        self._side.setVisible(not all(part.isHidden() for part in beside))

    def _show_used(self) -> None:
        """Show the shapes that programs used of the workload's operation."""
        used = self.used.get(USED_BY.get(self.name, ""))
        self._used.setVisible(used is not None and used.refresh())
        if used is not None:
            self.used_view.show_rows(used.rows)
            show_if_any(self._unread, used.problem)

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
            lambda _: self._link.announce_file(tr("Result"), file),
            self.result.show_note,
        )

    def _try(self, job: int) -> None:
        self._link.send(self, FindTrained(job), self.model_tried.emit, self.result.show_note)

    def _show_past(self) -> None:
        """Hide the earlier results if a chart leaves no room for them."""
        charted = self.result.isVisibleTo(self) and self.result.charted
        charted = charted and not self.result.cells.alone
        beside = self._results.direction() == QBoxLayout.Direction.LeftToRight
        no_room = charted and not beside and self.height() < _ROOMY
        others = any(bar.job != self._shown for bar in self.bars.bars)
        self._past.setVisible(others and not no_room)
        policy = QSizePolicy.Policy
        self._last.setSizePolicy(policy.Preferred, policy.Expanding if charted else policy.Maximum)
        self.bars.spread(wanted=beside)
        for at, stretched in enumerate((charted, not charted)):
            self._main.setStretch(at, int(stretched))
        for at, factor in enumerate((3, 2) if beside else (int(charted), int(not charted))):
            self._results.setStretch(at, factor)

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
        self.result.try_it.setVisible(leaves_model(job))
        result = result_of(job)
        self.result.show_curves(result)
        others = (
            r
            for j in snapshot.jobs
            if j.spec.workload in CEILINGS and (r := result_of(j)) is not None
        )
        self.result.show_cells(result if result is not None and result.cells else None, others)

    def _check(self) -> None:
        right, missing = self.form.check(), missing_of(*self.form.form.workload.extras)
        self._scaled.setVisible(self.name == DIVIDED and right)
        if self.name == DIVIDED and right:
            self.scale.show_values(self.form.form.values)
        replayed = self._state.device_kind == "replay"
        self.run.setEnabled(right and not replayed and missing is None)
        if replayed:
            set_text(self.estimate, tr(REPLAY))
        elif missing is not None:
            set_text(self.estimate, tr_text(missing.text))
        else:
            set_text(
                self.estimate,
                self.form.form.estimate() or tr("Correct the fields that are marked in red."),
            )

    def _submit(self) -> None:
        form = self.form.form
        request = form.submission()
        self._link.send(self, request, lambda _: form.answered(request))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange(self.width() >= theme.px(_WIDE), self.width() >= theme.px(_WIDEST))
        super().resizeEvent(event)

    def _toggle_form(self) -> None:
        self._form_wanted = self.parameters.isChecked()
        self._open_form()

    def _open_form(self) -> None:
        """Show the form, which a narrow page opens on demand and where there is no result."""
        wanted, narrow = self._form_wanted, self.box.isVisibleTo(self)
        opened = wanted if wanted is not None else self.result.isHidden()
        self.parameters.setChecked(opened)
        self._form_card.setVisible(opened or not narrow)
        self.form.spread(wide=narrow and self.width() >= theme.px(_SPREAD))

    def _arrange(self, wide: bool, widest: bool) -> None:
        """Put list, form, result and earlier results side by side, as far as there is room."""
        directions, policy = QBoxLayout.Direction, QSizePolicy.Policy
        self._list.setVisible(wide)
        self._above.setVisible(not wide)
        self._short_code.setVisible(self.width() >= theme.px(_LEAST_CODE))
        self._panes.setDirection(directions.LeftToRight if wide else directions.TopToBottom)
        self._results.setDirection(directions.LeftToRight if widest else directions.TopToBottom)
        self.result.show_all(wanted=widest)
        self._form_card.setMinimumWidth(theme.px(_FORM) if wide else 0)
        self._form_card.setMaximumWidth(theme.px(_FORM) if wide else NO_LIMIT)
        # a narrow page scrolls the whole form, which else scrolls by itself; Run stays in sight
        self._parameters.setSizePolicy(policy.Expanding, policy.Expanding if wide else policy.Fixed)
        self.result.facts.setSizePolicy(policy.Expanding, policy.Maximum if wide else policy.Fixed)
        if (self._send.indexOf(self.run) >= 0) != wide:
            (self._send if wide else self._chosen).addWidget(self.run)
            (self._send if wide else self._over).insertWidget(0 if wide else 1, self.estimate)
        self._open_form()
        self._show_past()

    def _lay_out(self) -> None:
        self._short_code = short_code = button(
            tr("Code…"), self.code_opened.emit, tooltip=self.code.toolTip()
        )
        self._chosen = row(self.box, self.parameters, short_code, Stretch())
        self._over = column(self._chosen)
        self._above = clear_panel(self._over)
        listed = column(*self.choices.values(), rule(), self.code, Stretch(), spacing=2)
        self._list = clear_panel(listed)
        self._list.setFixedWidth(theme.px(_LIST))
        self._forms = column()
        self._forms.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._parameters = _FormArea(clear_panel(self._forms))
        self._send = column(self.estimate, self.run)
        self._form_card = card(
            column(self.summary, Stretch(self._parameters), self._send, spacing=theme.M)
        )
        self._rule = rule()
        self.empty.setMinimumHeight(_EMPTY_HEIGHT)
        self._last = card(
            column(
                self.active, self._rule, Stretch(self.result), self.search, self.empty,
                spacing=theme.L,
            )
        )  # fmt: skip
        self._past = card(column(self.past, Stretch(self.bars)))
        policy = QSizePolicy.Policy
        self._past.setSizePolicy(policy.Preferred, policy.Maximum)
        title = label(tr("Shapes that your programs used"), strong=True)
        self._unread = label(meaning="failed", wrap=True)
        self._used = card(column(title, self._unread, Stretch(self.used_view)))
        self._used.setSizePolicy(policy.Preferred, policy.Maximum)
        self._scaled = card(column(self.scale))
        self._scaled.setSizePolicy(policy.Preferred, policy.Maximum)
        self._main = column(self._last, Stretch())
        beside = column(Stretch(self._past, 1000), self._used, self._scaled, Stretch())
        self._side = clear_panel(beside)
        main = clear_panel(self._main)
        self._results = column(main, self._side, spacing=theme.M)
        self._panes = row(self._list, self._form_card, Stretch(self._results), spacing=theme.M)
        self._panes.setAlignment(self._form_card, Qt.AlignmentFlag.AlignTop)
        self.setLayout(column(self._above, Stretch(self._panes)))


class _FormArea(QScrollArea):
    """Be as high as the form, so that Run follows the last field."""

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self._content = content
        set_up_scroll(self, content, tr("Parameters"))

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
