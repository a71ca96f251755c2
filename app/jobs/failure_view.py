"""Say why a job failed, and offer what to do about it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame

from gpudeck.app.format.failure import Failure
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, elided, label, row, set_text
from gpudeck.app.widgets.toast import open_path
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.protocol.jobs import Job


class FailureCard(QFrame):
    """Show the cause, the line of the log that shows it, and the buttons; hidden without one.

    Emits `retried` with the fields of the job that are to be different, and whether the new job
    works in the artefacts of the old one.
    """

    retried = Signal(dict, bool)

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("failure", "true")
        self.setAccessibleName(tr("Why the job failed"))
        self.cause = label(meaning="failed", strong=True, wrap=True)
        self.quote = elided(meaning="muted")
        self.quote.setFont(theme.monospace(theme.SMALL))
        self.retry = button("", lambda: self._retry(artefacts=False), kind="primary")
        self.resume = button(
            tr("Keep artefacts and continue"),
            lambda: self._retry(artefacts=True),
            tooltip=tr("The new job works in the artefacts of this one, such as a checkpoint"),
        )
        self.folder = button(tr("Open folder"), self._open, tooltip=tr("Open the job's folder"))
        self._shown: Failure | None = None
        self._folder = ""
        buttons = row(Stretch(), self.folder, self.resume, self.retry)
        self.setLayout(
            column(
                self.cause,
                self.quote,
                buttons,
                spacing=theme.XS,
                margins=(theme.M, theme.S, theme.M, theme.S),
            )
        )
        self.hide()

    def show_failure(self, job: Job, failure: Failure | None) -> None:
        """Show why this job failed; hide the card if it did not."""
        self._shown = failure
        self.setVisible(failure is not None)
        if failure is not None:
            cause = capitalized(tr_text(failure.cause))
            set_text(self.cause, cause)
            set_text(self.quote, failure.line)
            self.quote.setVisible(bool(failure.line) and failure.line not in cause)
            self.retry.setText(tr_text(failure.remedy.title))
            self._folder = job.spec.cwd
            self.folder.setVisible(not job.spec.where)
            self.resume.setVisible(not job.spec.where)

    @property
    def explains(self) -> bool:
        """Return whether there is a failure to show."""
        return self._shown is not None

    def _retry(self, *, artefacts: bool) -> None:
        if self._shown is not None:
            self.retried.emit(self._shown.remedy.changes, artefacts)

    def _open(self) -> None:
        open_path(Path(self._folder))
