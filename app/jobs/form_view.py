"""Edit a job, with a forecast of where and when it would start."""

from __future__ import annotations

import shlex
from functools import partial

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtWidgets import QMenu, QWidget

from gpudeck.app.format.free_devices import largest_memory
from gpudeck.app.format.job_rows import device_labels, forecast_text
from gpudeck.app.jobs.form import FIELDS, JobForm
from gpudeck.app.jobs.form_fields import JobFields
from gpudeck.app.jobs.form_notes import form_notes, has_gpus
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    add_shortcuts,
    button,
    card,
    clear_panel,
    column,
    delay,
    label,
    row,
    scroll_area,
    set_text,
)
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
    """Edit and queue a job. Return queues the job, Esc closes the form."""

    queued = Signal(int)
    """Carries the number of the job that was queued."""
    closed = Signal()

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self.form, self.fields = JobForm(), JobFields()
        self.editors = self.fields.editors
        self._snapshot: Snapshot | None = None
        self._forecast: Spec | None = None
        """The job of which the newest forecast was requested."""
        self._requested_at = 0.0
        self._warnings: dict[str, str] = {}
        """What will not be found, by field."""
        self.said = label(tr(NO_COMMAND), meaning="muted", wrap=True)
        self.said.setAccessibleName(tr("Where and when it would start"))
        self.queue = button(tr("Queue job"), self._send, kind="primary", tooltip=tr("Return"))
        self.close_button = button(tr("Close"), self.closed, tooltip=tr("Esc"))
        self.earlier = button(
            tr("From an earlier job…"), tooltip=tr("Fill in the fields from an earlier job")
        )
        self.menu = QMenu(self.earlier)
        self.menu.aboutToShow.connect(self._offer_jobs)
        self.earlier.setMenu(self.menu)
        self.clear = button(tr("Clear"), self._clear, tooltip=tr("Empty all fields"))
        self._typing = delay(self, _TYPING_MS, self._look_again)
        self.fields.changed.connect(self._put)
        slots = dict.fromkeys(("Return", "Enter", "Ctrl+Return", "Ctrl+Enter"), self._send_by_key)
        add_shortcuts(self, {**slots, "Esc": self.close_button.click})
        head = row(label(tr("New job"), strong=True), Stretch(), self.earlier, self.clear)
        self._content = clear_panel(column(self.fields, Stretch()))
        self._content.installEventFilter(self)
        self._area = scroll_area(self._content)
        send = row(Stretch(self.said), self.close_button, self.queue, spacing=theme.M)
        parts = (head, Stretch(self._area, 1000), send, Stretch())
        self.setLayout(column(card(column(*parts, spacing=theme.M))))
        self._check()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let the buttons follow the fields: these are no higher than they need to be."""
        if watched is self._content and event.type() == QEvent.Type.LayoutRequest:
            self._area.setMaximumHeight(self._content.sizeHint().height())
        return super().eventFilter(watched, event)

    def begin(self, snapshot: Snapshot | None) -> None:
        """Focus the form, which keeps what was typed before."""
        self._snapshot = snapshot
        if snapshot is not None:
            self._offer(snapshot)
            if not any(self.form.values.values()):
                self._show_values()
        editor = self.editors["command"]
        editor.setFocus()
        editor.selectAll()
        self._check()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Offer the clusters there are now, and renew the forecast from time to time."""
        self._snapshot = snapshot
        self._offer(snapshot)
        age = snapshot.time - self._requested_at
        if not 0 <= age < _RENEW_S and not self._typing.isActive():
            self._requested_at = snapshot.time
            self._request_forecast()

    def fill(self, spec: Spec) -> None:
        """Take over the options of an earlier job."""
        self.form.fill(spec)
        self._show_values()

    def choose_gpu(self, gpu: str) -> None:
        """Ask for this GPU alone, such as "GPU 5"."""
        self.form.values |= {"gpus": "1", "gpu_type": gpu}
        self._show_values()

    def _clear(self) -> None:
        self.form.clear()
        self._show_values()
        self.editors["command"].setFocus()

    def _show_values(self) -> None:
        """Show what the form holds; an empty one asks for one GPU where there are GPUs."""
        if not any(self.form.values.values()) and self._snapshot and has_gpus(self._snapshot):
            self.form.values["gpus"] = "1"
        values = dict(self.form.values)  # the fields report each text that changes
        if self._snapshot is not None:
            self._offer(self._snapshot)
        self.fields.show_values(values)
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

    def _offer(self, snapshot: Snapshot) -> None:
        """Offer what there is now: places, memory, and limits of host memory and CPUs."""
        chosen = self.form.values["where"]
        self.fields.offer_places(self.form.places(snapshot.settings.clusters), chosen)
        self.fields.offer_limits(snapshot.unlimited)
        self.fields.memory.offer(largest_memory(snapshot))
        self._show_notes()

    def _check(self) -> None:
        """Show errors now, and a forecast when the user stops typing."""
        self._warnings = {}
        wrong = self._show_notes()
        self.queue.setEnabled(not wrong and self.form.spec() is not None)
        ready = wrong or self.queue.isEnabled()
        self._show_message("" if ready else tr(NO_COMMAND), "muted")
        self._typing.start()

    def _show_notes(self) -> dict[str, str]:
        """Show what is wrong with each field, or good to know; return what is wrong."""
        wrong = self.form.errors()
        spec = self._spec(wrong)
        warnings = self._warnings if spec is not None else {}
        self.fields.show_notes(form_notes(wrong, warnings, self.form, self._snapshot))
        return wrong

    def _put(self, name: str, text: str) -> None:
        self.form.values[name] = text
        self._check()

    def _spec(self, errors: dict[str, str]) -> Spec | None:
        """Return the job; add to `errors` why it cannot be sent."""
        try:
            return self.form.spec()
        except UserError as e:
            errors["command"] = tr_text(e.message)
            return None

    def _look_again(self) -> None:
        """Look for the program and the files of the command, and request a forecast."""
        if self.isVisible() and self._spec({}) is not None:
            self._warnings = self.form.warnings()
            self._show_notes()
        self._request_forecast()

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
            self._show_message(f"{self.form.scope}{text}.", meaning)

    def _show_refusal(self, spec: Spec, message: str) -> None:
        if spec is self._forecast:
            self._show_message(message, "failed")

    def _send_by_key(self) -> None:
        """Queue the job, or go to the first field that keeps it from being queued."""
        if self.queue.isEnabled():
            self._send()
            return
        wrong = self.form.errors()
        name = next((field.name for field in FIELDS if field.name in wrong), "command")
        self.editors[name].setFocus()
        self.editors[name].selectAll()

    def _send(self) -> None:
        if (request := self.form.submission()) is not None:
            self._link.send(
                self,
                request,
                lambda reply: self._close(request, reply),
                lambda text: self._show_message(text, "failed"),
            )

    def _close(self, request: Submit | SubmitMany, reply: Job | tuple[Job, ...]) -> None:
        self.form.answered(request)
        self.queued.emit((reply if isinstance(reply, Job) else reply[0]).id)

    def _show_message(self, text: str, meaning: str) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", meaning)
