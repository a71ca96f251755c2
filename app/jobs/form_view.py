"""Edit a job, with a forecast of where and when it would start."""

from __future__ import annotations

import shlex
from functools import partial

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QComboBox,
    QFileDialog,
    QGridLayout,
    QLineEdit,
    QMenu,
    QVBoxLayout,
    QWidget,
)

from gpudeck.app.format.job_rows import device_labels, forecast_text
from gpudeck.app.jobs.form import FIELDS, HERE, LIMITS, PLACE, ROWS, Field, JobForm
from gpudeck.app.language.texts import tr, tr_noop, tr_sentence
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, card, column, label, row, set_text
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Forecast, Job, Spec
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.submit import Foresee, Submit, SubmitMany

NO_COMMAND = tr_noop("Enter a command. It runs without a shell.")
_TYPING_MS = 250
_MOST_TEMPLATES, _LONGEST = 15, 90
"""Earlier jobs that are offered, and characters of their commands."""
_RENEW_S = 2.0
"""Seconds after which a forecast is renewed, since the queue changes."""


class JobFormView(QWidget):
    """Edit and queue a job. Ctrl+Return queues the job, Esc closes the form."""

    queued = Signal(int)
    """Carries the number of the job that was queued."""
    closed = Signal()

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self.form = JobForm()
        self._snapshot: Snapshot | None = None
        self._forecast: Spec | None = None
        """The job of which the newest forecast was requested."""
        self._requested_at = 0.0
        self.editors: dict[str, QLineEdit] = {}
        self._unlimited = ""
        """Why host memory and CPUs cannot be limited here; empty where they can."""
        self.where = QComboBox()
        self.where.currentIndexChanged.connect(
            lambda: self._put("where", self.where.currentData() or "")
        )
        self._away: list[QWidget] = []
        """The widgets that are shown if there are clusters."""
        self.said = label(tr(NO_COMMAND), meaning="muted", wrap=True)
        self.said.setAccessibleName(tr("Where and when it would start"))
        self.queue = button(tr("Queue job"), kind="primary", tooltip="Ctrl+Return")
        self.close_button = button(tr("Close"), tooltip="Esc")
        self.earlier = button(
            tr("From an earlier job…"), tooltip=tr("Fill in the fields from an earlier job")
        )
        self.menu = QMenu(self.earlier)
        self.menu.aboutToShow.connect(self._offer_jobs)
        self.earlier.setMenu(self.menu)
        self.clear = button(tr("Clear"), self._clear, tooltip=tr("Empty all fields"))
        self.browse = button(
            tr("Browse…"), self._browse, kind="quiet", tooltip=tr("Choose the folder")
        )
        self.browse.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # a path is typed in the field
        self.queue.clicked.connect(self._send)
        self.close_button.clicked.connect(self.closed)
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(_TYPING_MS)
        self._typing.timeout.connect(self._request_forecast)
        for keys, slot in (
            ("Ctrl+Return", self.queue.click),
            ("Ctrl+Enter", self.queue.click),
            ("Esc", self.close_button.click),
        ):
            QShortcut(
                QKeySequence(keys),
                self,
                slot,
                context=Qt.ShortcutContext.WidgetWithChildrenShortcut,
            )
        self._lay_out()
        self._check()

    def begin(self, snapshot: Snapshot | None) -> None:
        """Focus the form, which keeps what was typed before."""
        self._snapshot = snapshot
        if snapshot is not None:
            self._offer(self.form.places(snapshot.settings.clusters))
            self._offer_limits(snapshot.unlimited)
        editor = self.editors["command"]
        editor.setFocus()
        editor.selectAll()
        self._check()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Offer the clusters there are now, and renew the forecast from time to time."""
        self._snapshot = snapshot
        self._offer(self.form.places(snapshot.settings.clusters))
        self._offer_limits(snapshot.unlimited)
        age = snapshot.time - self._requested_at
        if not 0 <= age < _RENEW_S and not self._typing.isActive():
            self._requested_at = snapshot.time
            self._request_forecast()

    def fill(self, spec: Spec) -> None:
        """Take over the options of an earlier job."""
        self.form.fill(spec)
        self._show_values()

    def _clear(self) -> None:
        self.form.clear()
        self._show_values()
        self.editors["command"].setFocus()

    def _show_values(self) -> None:
        """Show what the form holds."""
        values = dict(self.form.values)
        for name, editor in self.editors.items():
            editor.setText(values[name])
        if self._snapshot is not None:
            self._offer(self.form.places(self._snapshot.settings.clusters))
        at = self.where.findData(values["where"])
        self.where.setCurrentIndex(max(at, 0))
        self._check()

    def _offer_jobs(self) -> None:
        """Offer the newest jobs with different commands."""
        self.menu.clear()
        jobs = self._snapshot.jobs if self._snapshot else ()
        seen: dict[tuple[str, ...], Job] = {}
        for job in jobs:
            if not job.spec.workload:
                seen.setdefault(job.spec.argv, job)
        for job in list(seen.values())[:_MOST_TEMPLATES]:
            text = f"{job.id} · {shlex.join(job.spec.argv)}"[:_LONGEST].replace("&", "&&")
            self.menu.addAction(text, partial(self.fill, job.spec))
        if not seen:
            self.menu.addAction(tr("No earlier jobs")).setEnabled(False)

    def _browse(self) -> None:
        dialog = QFileDialog(self, tr("The folder of the job"), self.editors["cwd"].text())
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.editors["cwd"].setText)
        dialog.open()

    def _offer(self, places: list[str]) -> None:
        """Offer these places; without clusters there is no choice to show."""
        if places != [self.where.itemData(at) for at in range(self.where.count())]:
            blocked = self.where.blockSignals(True)  # the choice stays
            self.where.clear()
            for place in places:
                self.where.addItem(place or tr(HERE), place)
            self.where.setCurrentIndex(places.index(self.form.values["where"]))
            self.where.blockSignals(blocked)
        for widget in self._away:
            widget.setVisible(len(places) > 1)

    def _offer_limits(self, problem: str) -> None:
        """Offer limits of host memory and CPUs; where there can be none, say why.

        What an earlier job had can still be removed there.
        """
        for field in FIELDS:
            if field.name in LIMITS:
                editor = self.editors[field.name]
                editor.setEnabled(not problem or bool(editor.text()))
                hint = tr(field.hint)
                editor.setPlaceholderText(tr("not available here") if problem else hint)
        text = ""
        if problem:
            why = tr_sentence(problem)
            text = tr("Host memory and CPUs cannot be limited here: {problem}", problem=why)
        if text != self._unlimited:
            self._unlimited = text
            self._check()

    def _check(self) -> None:
        """Show errors now, and a forecast when the user stops typing."""
        wrong = self.form.errors()
        for name, editor in self.editors.items():
            theme.mark(editor, "wrong", "true" if name in wrong else "")
            editor.setToolTip(wrong.get(name, self._unlimited if name in LIMITS else ""))
        spec = self._spec(wrong)
        self.queue.setEnabled(spec is not None)
        if wrong:
            name, message = next(iter(wrong.items()))
            field = next(f.label for f in FIELDS if f.name == name)
            text = tr("{field}: {problem}", field=tr(field), problem=message)
            self._show_message(text, "failed")
        elif spec is None:
            self._show_message(tr(NO_COMMAND), "muted")
        self._typing.start()

    def _spec(self, errors: dict[str, str]) -> Spec | None:
        """Return the job; add to `errors` why it cannot be sent."""
        try:
            return self.form.spec()
        except UserError as e:
            errors["command"] = tr_sentence(str(e))
            return None

    def _request_forecast(self) -> None:
        if self.isVisible() and (spec := self._spec({})) is not None:
            self._forecast = spec
            self._link.send(
                self,
                Foresee(spec),
                lambda forecast: self._show_forecast(spec, forecast),
                lambda message: self._show_refusal(spec, message),
                background=True,
            )

    def _show_forecast(self, spec: Spec, forecast: Forecast) -> None:
        """Show the forecast, unless the form was changed since it was requested."""
        if spec is self._forecast and self._snapshot is not None:
            text = forecast_text(forecast, device_labels(self._snapshot), self._snapshot.time)
            meaning = "" if forecast.wait is None else "muted"
            warning = self.form.warning()
            if warning:
                self._show_message(f"{warning[0].upper()}{warning[1:]}", "warm")
            else:
                self._show_message(f"{self.form.scope}{text}.", meaning)

    def _show_refusal(self, spec: Spec, message: str) -> None:
        if spec is self._forecast:
            self._show_message(tr_sentence(message), "failed")

    def _send(self) -> None:
        if self.queue.isEnabled() and (request := self.form.submission()) is not None:
            self._link.send(
                self,
                request,
                lambda reply: self._close(request, reply),
                lambda text: self._show_message(tr_sentence(text), "failed"),
            )

    def _close(self, request: Submit | SubmitMany, reply: Job | tuple[Job, ...]) -> None:
        self.form.answered(request)
        self.queued.emit((reply if isinstance(reply, Job) else reply[0]).id)

    def _show_message(self, text: str, meaning: str) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", meaning)

    def _lay_out(self) -> None:
        grid = QGridLayout()
        grid.setHorizontalSpacing(theme.M)
        grid.setVerticalSpacing(6)
        for at, fields in enumerate(ROWS):
            place = 0
            for field in fields:
                editor = self._editor(field)
                editor.setAccessibleName(tr(field.label))
                editor.setAccessibleDescription(tr(field.hint))
                caption = label(tr(field.label), meaning="muted")
                caption.setBuddy(editor)
                grid.addWidget(caption, at, place)
                shown = editor
                if field.name == "cwd":
                    shown = QWidget()
                    shown.setLayout(row(Stretch(editor), self.browse, spacing=theme.XS))
                grid.addWidget(shown, at, place + 1, 1, field.columns)
                place += 1 + field.columns
                if field is PLACE:
                    self._away += [caption, editor]
        for column_at in (1, 3, 5):
            grid.setColumnStretch(column_at, 1)
        send = row(self.said, self.close_button, self.queue, spacing=theme.M)
        send.setStretch(0, 1)
        head = row(label(tr("New job"), strong=True), Stretch(), self.earlier, self.clear)
        inner = QVBoxLayout()
        inner.setSpacing(theme.M)
        inner.addLayout(head)
        inner.addLayout(grid)
        inner.addStretch(1)
        inner.addLayout(send)
        self.setLayout(column(card(inner)))

    def _editor(self, field: Field) -> QWidget:
        if field.name == "where":
            return self.where
        line = self.editors[field.name] = QLineEdit()
        line.setPlaceholderText(tr(field.hint))
        line.textChanged.connect(lambda text: self._put(field.name, text))
        return line

    def _put(self, name: str, text: str) -> None:
        self.form.values[name] = text
        self._check()
