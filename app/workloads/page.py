"""The workloads page: choose one, fill in its form, run it, read its result."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QGridLayout,
    QHBoxLayout,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from accel.workloads.catalog import WORKLOADS, find
from app.format.job_rows import device_labels, row
from app.link.link import Link
from app.state import State
from app.widgets import theme
from app.widgets.controls import button, label, rule, set_text
from app.widgets.controls import card as framed
from app.widgets.controls import row as line_of
from app.workloads.form import Form
from app.workloads.form_view import FormView
from app.workloads.result_bars import ResultBars
from app.workloads.result_card import ResultCard
from app.workloads.result_export import SaveResult
from app.workloads.results import bars, card, result_of
from app.workloads.run_line import RunLine
from scheduler.protocol.jobs import Done, Failed, Job
from scheduler.protocol.snapshot import Snapshot
from scheduler.verbs.jobs import GetJob

EMPTY = (
    "Not run yet. Fill in the form and press Run: the job's progress and its result appear here."
)
CEILINGS = ("gemm", "copy")
"""The workloads that measure what a roofline lies below."""
_MOST_WHOLE = 4
REPLAY = "A REPLAY shows the past and runs nothing. To run on this machine: gpudeck daemon start --source auto"
_CHOICES_A_LINE = 3
_ROOMY, _LOW = 900, 480
"""Pixels of height from which on a chart and the earlier results have room enough, and the figures and they."""
_FORM_WIDTHS, _FORM_SHARE = (400, 500), 0.45
"""Pixels of the form, and its share of the page between them: a result has room for its figures beside it in the smallest window."""
_WIDEST_RESULT, _HIGHEST_PAST, _EMPTY_HEIGHT = 1100, 420, 96


class WorkloadsPage(QWidget):
    """Edits and runs a workload, and shows and saves its results."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._views: dict[tuple[str, str], FormView] = {}
        self.name = WORKLOADS[0].name
        self.choices = {
            w.name: button(w.title, tooltip=w.summary, checkable=True) for w in WORKLOADS
        }
        group = QButtonGroup(self)
        for name, made in self.choices.items():
            group.addButton(made)
            made.clicked.connect(lambda _=False, n=name: self.choose(n))
        self.summary = label(meaning="muted", wrap=True)
        self.estimate = label(meaning="muted", wrap=True)
        self.run = button("Run", kind="primary", tooltip="Queue it as a job (Ctrl+Return)")
        self.run.setShortcut("Ctrl+Return")
        self.run.clicked.connect(self._submit)
        self.run_line, self.result = RunLine(), ResultCard()
        self.result.saved.connect(self._save)
        self.result.cells.viewed.connect(self._show_past)
        self._whole: dict[int, Job] = {}
        """Jobs whose results are too large for a snapshot, as far as they were shown."""
        self._fetching: set[int] = set()
        self.empty = label(EMPTY, meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.bars = ResultBars()
        self.past = label("Earlier results, TFLOP/s", strong=True)
        self._lay_out()
        self.choose(self.name)

    def choose(self, name: str) -> None:
        """Show the form of this workload, as it was left."""
        self.name = name
        self.choices[name].setChecked(True)
        set_text(self.summary, find(name).summary)
        self.refresh()

    @property
    def form(self) -> FormView:
        """The form that is shown."""
        key = self.name, self._state.device_kind
        if key not in self._views:
            view = self._views[key] = FormView(Form(find(self.name), self._state.device_kind))
            view.changed.connect(self._check)
            self._forms.addWidget(view)
        return self._views[key]

    def refresh(self) -> None:
        form = self.form
        for view in self._views.values():
            view.setVisible(view is form)
        self._check()
        snapshot = self._state.snapshot
        jobs = snapshot.jobs if snapshot is not None else ()
        mine = sorted((j for j in jobs if j.spec.workload == self.name), key=lambda j: -j.id)
        active = next((j for j in mine if j.active), None)
        ended = next((j for j in mine if not j.active), None)
        if snapshot is not None:
            if active is not None:
                self.run_line.show_job(row(active, device_labels(snapshot), snapshot.time))
            if ended is not None:
                self._show_result(ended, snapshot)
            self.bars.show_bars(bars(snapshot, self.name))
        self.run_line.setVisible(active is not None)
        self.result.setVisible(ended is not None)
        self._rule.setVisible(active is not None and ended is not None)
        self.empty.setVisible(not mine)
        self._show_past()

    def _show_whole(self, job: Job) -> None:
        self._fetching.discard(job.id)
        self._whole = dict([*self._whole.items(), (job.id, job)][-_MOST_WHOLE:])
        self.refresh()

    def _save(self, job: int, file: str) -> None:
        self._link.send(
            self,
            SaveResult(job, file),
            lambda _: self.result.say(f"Saved to {file}"),
            self.result.say,
        )

    def _show_past(self) -> None:
        """Where a chart or the figures leave no room for the earlier results, they give way."""
        charted = self.result.isVisibleTo(self) and self.result.charted
        self._past.setVisible(
            len(self.bars.bars) > 1 and self.height() > (_ROOMY if charted else _LOW)
        )

    def _show_result(self, job: Job, snapshot: Snapshot) -> None:
        """A large one is asked for; until it is here, its headline is shown."""
        if (
            isinstance(job.state, Done | Failed)
            and job.state.large
            and job.id not in {*self._whole, *self._fetching}
        ):
            self._fetching.add(job.id)
            self._link.send(self, GetJob(job.id), self._show_whole, self.result.say)
        job = self._whole.get(job.id, job)
        self.result.show_job(row(job, device_labels(snapshot), snapshot.time), card(job))
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
                self.estimate, self.form.form.estimate() or "The fields in red need another value."
            )

    def _submit(self) -> None:
        self._link.send(self, self.form.form.submission())

    def resizeEvent(self, event: QResizeEvent) -> None:
        narrowest, widest = _FORM_WIDTHS
        self._form_card.setFixedWidth(min(max(narrowest, int(_FORM_SHARE * self.width())), widest))
        super().resizeEvent(event)

    def _lay_out(self) -> None:
        chooser = QGridLayout()
        chooser.setSpacing(theme.XS)
        for i, choice in enumerate(self.choices.values()):
            chooser.addWidget(choice, *divmod(i, _CHOICES_A_LINE))
        body = QWidget()
        body.setProperty("clear", "true")
        self._forms = QVBoxLayout(body)
        self._forms.setContentsMargins(0, 0, 0, 0)
        self._forms.setAlignment(Qt.AlignmentFlag.AlignTop)
        send = line_of(self.estimate, self.run, spacing=theme.M)
        send.setStretch(0, 1)
        left = QVBoxLayout()
        left.setSpacing(theme.M)
        left.addLayout(chooser)
        left.addWidget(self.summary)
        left.addWidget(_Scroll(body), 1)
        left.addLayout(send)
        form = self._form_card = framed(left)
        last, past = QVBoxLayout(), QVBoxLayout()
        self._rule = rule()
        last.setSpacing(theme.L)
        last.addWidget(self.run_line)
        last.addWidget(self._rule)
        last.addWidget(self.result, 1)
        last.addWidget(self.empty)
        self.empty.setMinimumHeight(_EMPTY_HEIGHT)
        past.addWidget(self.past)
        past.addWidget(self.bars, 1)
        self._past = framed(past)
        self._past.setMaximumHeight(_HIGHEST_PAST)
        results = QWidget()
        results.setMaximumWidth(_WIDEST_RESULT)
        right = QVBoxLayout(results)
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(theme.S)
        right.addWidget(framed(last))
        right.addWidget(self._past, 1000)
        right.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addStretch(1)
        layout.addWidget(form, 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(results, 1000)
        layout.addStretch(1)


class _Scroll(QScrollArea):
    """Wants to be as high as what is in it, so that Run follows the last field."""

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self.setAccessibleName("Parameters")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._content = content
        self.setWidget(content)

    def sizeHint(self) -> QSize:
        hint, width = self._content.sizeHint(), self.viewport().width()
        return QSize(hint.width(), max(hint.height(), self._content.heightForWidth(width)))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()  # another form is shown
        return super().eventFilter(watched, event)
