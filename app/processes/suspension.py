"""Take programs off their GPUs, bring them back, and announce both."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr
from gpudeck.app.link.link import Link
from gpudeck.app.link.notice import Notice, NoticeAction
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.suspended import SuspendedProgram
from gpudeck.scheduler.verbs.suspension import GetSuspended, ResumeProcess, SuspendProcess


class ProgramSuspension(QObject):
    """Suspend and resume programs that are no jobs."""

    changed = Signal()
    """A program has left its GPU, or is back."""

    def __init__(self, owner: QObject, link: Link) -> None:
        super().__init__(owner)
        self._link = link

    def suspend(self, process: Process) -> None:
        """Take a program off its GPU."""
        self._announce(
            tr(
                "{name} ({pid}) leaves its GPU; its memory moves to the machine's",
                name=process.name,
                pid=process.pid,
            )
        )
        self._link.send(self, SuspendProcess(process.pid, process.ticks), self._tell_suspended)

    def resume_all(self) -> None:
        """Bring all suspended programs back to their GPUs."""
        self._link.send(self, GetSuspended(), self._resume)

    def _tell_suspended(self, found: SuspendedProgram) -> None:
        """Announce that a program is off its GPU, with the way back."""
        self.changed.emit()
        back = NoticeAction(tr("Resume"), lambda: self._resume((found,)))
        self._announce(
            tr(
                "{name} ({pid}) is suspended; {size} of GPU memory are free",
                name=found.name,
                pid=found.pid,
                size=memory(found.memory),
            ),
            back,
        )

    def _resume(self, found: tuple[SuspendedProgram, ...]) -> None:
        programs = [each for each in found if each.job is None]
        for each in programs:
            self._link.send(self, ResumeProcess(each.pid), self._tell_resumed)
        if not programs:
            self._announce(tr("No program is suspended"))

    def _tell_resumed(self, found: SuspendedProgram) -> None:
        self.changed.emit()
        self._announce(tr("{name} ({pid}) runs again", name=found.name, pid=found.pid))

    def _announce(self, text: str, *actions: NoticeAction) -> None:
        self._link.announced.emit(Notice(text, actions, seconds=10))
