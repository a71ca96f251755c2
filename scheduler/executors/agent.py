"""The agent of one cluster: the process that waits for the network, so that the daemon need not.

It does what the daemon says, copies output into the jobs' logs, and tells what it sees. It decides nothing, and knows nothing that the
daemon could not tell the next one. It ends with the daemon.

    python -m scheduler.executors.agent
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

import msgspec

from scheduler.executors import agent_protocol as e
from scheduler.executors import output_copy
from scheduler.executors.base import LOG_FILE, Exit
from scheduler.executors.ray import Ray
from scheduler.executors.slurm import Slurm
from scheduler.protocol import paths

POLL_S = 1.0
"""How often attempts are looked at."""
IDLE_S = 15.0
"""How often the cluster is asked whether it is there while nothing of ours runs."""
ROLL_S = 60.0
"""How often it is asked for all that is ours."""
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Before it is asked again after it did not answer."""
MAX_UNREAD = 5
"""How often the output of an attempt that is over is asked for."""
MAX_NOTE = 300

_REPORT = msgspec.json.Encoder().encode
_COMMAND = msgspec.json.Decoder(e.Command).decode


class Errand:
    """An attempt that is looked after."""

    def __init__(self, job: int, attempt: str, log_limit: int) -> None:
        self.job, self.attempt, self._log_limit = job, attempt, log_limit
        self.folder = paths.job_folder(job)
        self.known = False
        self.note: str | None = None
        self.unread = 0
        """How often its output could not be read after its end."""
        self._output: e.Output | None = None
        self._copier: threading.Thread | None = None

    def copy(self, backend: e.Backend) -> None:
        """See that its output is being copied. Raises Unreachable."""
        if self._copier is None or not self._copier.is_alive():
            try:
                self._output = output = backend.output(self.attempt, self.folder, follow=True)
            except e.Unreadable:
                return  # perhaps at the next look
            self._copier = threading.Thread(target=self._copy, args=(output,), daemon=True)
            self._copier.start()

    def _copy(self, output: e.Output) -> None:
        try:
            output_copy.copy(
                output, self.folder / LOG_FILE, self.attempt, self._log_limit, whole=False
            )
        except (e.Unreachable, e.Unreadable, OSError):
            pass  # begun anew at the next look; at the end all of it is read, and what is wrong is told

    def rest(self) -> None:
        """Copy no more."""
        if self._output is not None and self._copier is not None:
            self._output.close()
            self._copier.join()
            self._output = self._copier = None


class Agent:
    def __init__(
        self, backend: e.Backend, deck: str, say: Callable[[e.Report], None], log_limit: int = 0
    ) -> None:
        self._backend, self._deck, self._say, self._log_limit = backend, deck, say, log_limit
        self._errands: dict[str, Errand] = {}
        self._failures = 0
        self._rolled = float("-inf")

    @property
    def pause(self) -> float:
        """Seconds until the cluster is to be asked again."""
        if self._failures:
            return BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1]
        return POLL_S if self._errands else IDLE_S

    def obey(self, command: e.Command) -> None:
        try:
            match command:
                case e.Submit():
                    self._submit(command)
                case e.Follow(job, attempt):
                    self._follow(job, attempt)
                case e.Halt(attempt):
                    self._backend.halt(attempt)
        except e.Unreachable as trouble:
            self._away(trouble)

    def _submit(self, order: e.Submit) -> None:
        """Where it is not known whether the cluster heard us, the attempt is followed: the next look tells."""
        if order.again:
            self._follow(order.job, order.attempt)
        try:
            session = self._backend.session()
        except e.Unreachable as trouble:
            self._unsent(order, str(trouble))
            raise
        if session != order.session:
            self._unsent(order, "it was started anew meanwhile")
            return
        errand = self._follow(order.job, order.attempt)
        try:
            self._backend.submit(order, self._deck)
        except e.Refused as refusal:
            now = time.time()
            self._finish(
                errand,
                Exit(order.attempt, now, now, None, f"the cluster refuses it: {refusal}"),
                "",
            )
        else:
            self._know(errand)

    def _follow(self, job: int, attempt: str) -> Errand:
        return self._errands.setdefault(attempt, Errand(job, attempt, self._log_limit))

    def _unsent(self, order: e.Submit, why: str) -> None:
        if not order.again:
            self._say(e.Unsent(order.job, order.attempt, why))

    def look(self) -> None:
        """Once around all that is looked after."""
        try:
            session, ours = self._backend.session(), None
            if time.monotonic() - self._rolled > ROLL_S:
                ours = tuple(self._backend.ours(self._deck))
                self._rolled = time.monotonic()
            self._say(e.Here(session, ours))
            for errand in tuple(self._errands.values()):
                self._look_at(errand, session)
            self._failures = 0
        except e.Unreachable as trouble:
            self._away(trouble)

    def _away(self, trouble: e.Unreachable) -> None:
        self._failures += 1
        self._rolled = float("-inf")
        for errand in self._errands.values():
            errand.rest()
            errand.note = None
        self._say(e.Away(str(trouble)))

    def _look_at(self, errand: Errand, session: str) -> None:
        status = self._backend.status(errand.attempt, errand.folder)
        if status is None:
            errand.rest()
            del self._errands[errand.attempt]
            self._say(e.Missing(errand.job, errand.attempt, session))
            return
        self._know(errand)
        if status.phase == "over":
            self._conclude(errand, status)
        elif status.phase == "running":
            errand.copy(self._backend)
            self._note(errand, "")
        else:
            self._note(errand, status.note)

    def _conclude(self, errand: Errand, status: e.Status) -> None:
        """All of its output is at home before anybody hears that it is over."""
        errand.rest()
        try:
            output = self._backend.output(errand.attempt, errand.folder, follow=False)
            read = output_copy.copy(
                output, errand.folder / LOG_FILE, errand.attempt, self._log_limit
            )
            self._finish(errand, *_ending(errand.attempt, status, read.word, read.uncapped))
        except OSError as trouble:
            self._note(errand, f"its output cannot be stored: {trouble.strerror}")
        except e.Unreadable as trouble:
            errand.unread += 1
            self._note(errand, f"its output cannot be read: {trouble}")
            if errand.unread > MAX_UNREAD:  # the machine it ran on is gone
                self._finish(errand, *_ending(errand.attempt, status, None))

    def _finish(self, errand: Errand, ending: Exit, result: str) -> None:
        output_copy.keep(errand.folder, ending, result)
        self._errands.pop(errand.attempt, None)
        self._say(e.Ended(errand.job, errand.attempt))

    def _know(self, errand: Errand) -> None:
        if not errand.known:
            errand.known = True
            self._say(e.Known(errand.job, errand.attempt))

    def _note(self, errand: Errand, note: str) -> None:
        if errand.note != note[:MAX_NOTE]:
            errand.note = note[:MAX_NOTE]
            self._say(e.Doing(errand.job, errand.attempt, errand.note))


def _ending(
    attempt: str, status: e.Status, word: output_copy.Word | None, uncapped: str = ""
) -> tuple[Exit, str]:
    """How it ended, and its Result: by its runner's word, or what the cluster says where that could say none."""
    if word is not None:
        return Exit(
            attempt, word.started, word.ended, word.code, word.error, word.over, uncapped
        ), word.result
    ended = status.ended or time.time()
    code, error = (
        (None, status.note or "the cluster does not say how it ended") if status.failed else (0, "")
    )
    return Exit(attempt, status.started or ended, ended, code, error, uncapped=uncapped), ""


def backend(config: e.Config) -> e.Backend:
    """The cluster that the settings name."""
    return Ray(config.address, config.token_file) if config.where.startswith("ray:") else Slurm()


def main() -> None:
    """Until the daemon closes our standard input."""
    config = msgspec.json.decode(sys.stdin.buffer.readline(), type=e.Config)
    commands: SimpleQueue[e.Command] = SimpleQueue()
    threading.Thread(target=_hear, args=(commands,), daemon=True).start()
    agent = Agent(backend(config), config.deck, _say, config.log_limit)
    while True:
        agent.look()
        try:
            agent.obey(commands.get(timeout=agent.pause))
            while True:
                agent.obey(commands.get_nowait())
        except Empty:
            pass


def _hear(commands: SimpleQueue[e.Command]) -> None:
    for line in sys.stdin.buffer:
        commands.put(_COMMAND(line))
    os._exit(0)  # at once, whatever the network does: the next daemon's agent may be here already


def _say(report: e.Report) -> None:
    sys.stdout.buffer.write(_REPORT(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
