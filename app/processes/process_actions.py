"""End, suspend or copy the chosen process, by a key, the menu or the button."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction, QGuiApplication

from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.link.link import Link
from gpudeck.app.processes.process_rows import ProcessRow, question, script_name
from gpudeck.app.processes.suspension import ProgramSuspension
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.controls import QuestionCard, button
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.verbs.devices import KillProcess

_END, _LONGEST_NAME = tr_noop("End process…"), 20
"""The button without a target, and the most letters of a target's name in it."""


class ProcessActions(QObject):
    """Carry out what the user wants done with the chosen process."""

    changed = Signal()
    """A process ends, or has left its GPU, or is back."""
    job_chosen = Signal(int)
    asked = Signal()
    """The user is asked whether a process ends, or the question is over."""

    def __init__(self, owner: QObject, link: Link) -> None:
        super().__init__(owner)
        self._link = link
        self._chosen: ProcessRow | None = None
        self._ending: ProcessRow | None = None
        """The process that the user is asked about."""
        self._suspension = ProgramSuspension(self, link)
        self._suspension.changed.connect(self.changed)
        self.end = button(
            tr(_END),
            lambda: self._ask_about(self._chosen),
            tooltip=hint("process.end", tr("Ask the process to end, and kill it if it does not")),
        )
        self.question = QuestionCard(
            tr("End process"), tr("Cancel"), self._kill, lambda: self._ask_about(None)
        )

    def slots(self) -> dict[str, Callable[[], object]]:
        """Return what the actions do, by their names in the table of actions."""
        return {
            "process.end": self.end.click,
            "process.suspend": self._suspend,
            "process.resume": self._suspension.resume_all,
            "process.copy": self.copy_command,
            "process.pid": self._copy_pid,
            "process.job": self._show_job,
            "process.leave": self.question.no.click,
        }

    def choose(
        self, chosen: ProcessRow | None, present: bool, actions: Mapping[str, QAction]
    ) -> None:
        """Enable what can be done with a process; `present`: it is one of now."""
        self._chosen = chosen
        process = chosen.process if chosen is not None else None
        known = process is not None and process.ticks > 0 and present
        self.end.setEnabled(known and self._ending is None)
        text = _end_text(process) if process is not None and known else tr(_END)
        if self.end.text() != text:
            self.end.setText(text)
        for name in ("process.copy", "process.pid"):
            actions[name].setEnabled(process is not None)
        actions["process.job"].setEnabled(process is not None and process.job is not None)
        foreign = known and process is not None and process.foreign and process.kind != "cpu"
        actions["process.suspend"].setEnabled(foreign)

    def leave_ended(self, rows: tuple[ProcessRow, ...]) -> None:
        """Ask no longer about a process that has ended by itself."""
        if self._ending is not None and self._ending.key not in {r.key for r in rows}:
            self._ask_about(None)

    def copy_command(self) -> None:
        """Copy the command of the chosen process, or its name where no command is known."""
        if self._chosen is not None:
            process: Process = self._chosen.process
            QGuiApplication.clipboard().setText(process.command or process.name)

    def _copy_pid(self) -> None:
        if self._chosen is not None:
            QGuiApplication.clipboard().setText(str(self._chosen.process.pid))

    def _show_job(self) -> None:
        if self._chosen is not None and self._chosen.process.job is not None:
            self.job_chosen.emit(self._chosen.process.job)

    def _suspend(self) -> None:
        if self._chosen is not None:
            self._suspension.suspend(self._chosen.process)

    def _ask_about(self, process: ProcessRow | None) -> None:
        self._ending = process
        if process is not None:
            self.question.ask(question(process.process))
        else:
            self.question.hide()
        self.asked.emit()

    def _kill(self) -> None:
        if self._ending is not None:
            process = self._ending.process
            request = KillProcess(process.pid, process.ticks)
            self._link.send(self, request, lambda _: self.changed.emit())
            self._ask_about(None)


def _end_text(process: Process) -> str:
    """Return the text of the button that ends a process."""
    name = script_name(process) or f"{process.name} {process.pid}"
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return tr("End {name}…", name=short.replace("&", "&&"))
