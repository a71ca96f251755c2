"""Remove waiting jobs from the queue, with undo, and stop running ones after a question."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from gpudeck.app.jobs.listing import removed_text, stop_question
from gpudeck.app.language.texts import tr
from gpudeck.app.link.link import Link
from gpudeck.app.link.notice import Notice, NoticeAction
from gpudeck.app.widgets.controls import QuestionCard, add_shortcuts
from gpudeck.scheduler.protocol.jobs import UNDO_S, Cancelling, Job
from gpudeck.scheduler.verbs.change import CancelMany, Restore


class JobRemoval(QObject):
    """Hold the question about running jobs, and what can be undone."""

    left = Signal()
    """The question was answered."""

    def __init__(self, owner: QObject, link: Link) -> None:
        super().__init__(owner)
        self._link = link
        self._wanted: tuple[int, ...] = ()
        """The jobs that the user is asked about."""
        self._removed: dict[tuple[int, ...], Notice] = {}
        """The removals from the queue that the user can undo, the newest last, and what was said
        about them."""
        self.asking = QuestionCard(
            tr("Stop"), tr("Keep running"), self._cancel, self._keep, primary="no"
        )
        add_shortcuts(self.asking, {"Esc": self.asking.no.click})

    def request(self, waiting: Sequence[int], running: Sequence[Job], now: float) -> None:
        """Remove jobs that wait at once; where some run, ask first.

        Args:
            now: Seconds since the epoch.
        """
        self._wanted = (*waiting, *(job.id for job in running))
        if running:
            self.asking.ask(stop_question(running, len(waiting), now))
        elif waiting:
            self._cancel()

    def undo(self) -> None:
        """Undo the last removal."""
        if self._removed:
            self._restore(next(reversed(self._removed)))

    def _cancel(self) -> None:
        if self._wanted:
            self._link.send(self, CancelMany(self._wanted), self._offer_undo)
        self._keep()

    def _keep(self) -> None:
        self.asking.hide()
        self.left.emit()

    def _offer_undo(self, done: Cancelling) -> None:
        if done.cancelled:
            undo = NoticeAction(tr("Undo"), lambda: self._restore(done.cancelled))
            text = removed_text(done.cancelled)
            notice = self._removed[done.cancelled] = Notice(text, (undo,), seconds=UNDO_S)
            self._link.announced.emit(notice)

    def _restore(self, jobs: tuple[int, ...]) -> None:
        """Put jobs back where they waited, once."""
        if (notice := self._removed.pop(jobs, None)) is not None:
            self._link.withdrawn.emit(notice)
            self._link.send(self, Restore(jobs))
