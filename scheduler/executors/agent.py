"""The agent of one cluster: the process that waits for the network, so that the daemon need not.

It does what the daemon commands, copies output into the jobs' logs, and reports what it finds. It
decides nothing, and knows nothing that the daemon could not tell its successor. It ends with the
daemon.

    python -m gpudeck.scheduler.executors.agent
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import LOG_FILE, Exit
from gpudeck.scheduler.executors import agent_protocol as a
from gpudeck.scheduler.executors import output_copy
from gpudeck.scheduler.executors.attempt_folder import write_records
from gpudeck.scheduler.executors.ray import Ray
from gpudeck.scheduler.executors.slurm import Slurm
from gpudeck.scheduler.protocol import paths

POLL_S = 1.0
"""Seconds between two polls of the attempts."""
IDLE_S = 15.0
"""Seconds between two polls of the cluster while it runs nothing of ours."""
LIST_S = 60.0
"""Seconds between two lists of all that is ours."""
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between two polls of a cluster that does not answer."""
MAX_UNREAD = 5
"""How often the output of an attempt that is over is asked for."""
MAX_NOTE = 300

_ENCODE = msgspec.json.Encoder().encode
_COMMAND = msgspec.json.Decoder(a.Command).decode


class FollowedAttempt:
    """Represent an attempt that the agent follows, and copy its output."""

    def __init__(self, job: int, attempt: str, log_limit: int) -> None:
        self.job, self.attempt, self._log_limit = job, attempt, log_limit
        self.folder = paths.job_folder(job)
        self.acknowledged = False
        self.note: Message | None = None
        self.unread = 0
        """How often its output could not be read after its end."""
        self._output: a.Output | None = None
        self._copier: threading.Thread | None = None

    def start_copy(self, backend: a.Backend) -> None:
        """Have its output copied by a thread. Raises Unreachable."""
        if self._copier is None or not self._copier.is_alive():
            try:
                self._output = output = backend.output(self.attempt, self.folder, follow=True)
            except a.Unreadable:
                return  # perhaps at the next poll
            self._copier = threading.Thread(target=self._copy, args=(output,), daemon=True)
            self._copier.start()

    def _copy(self, output: a.Output) -> None:
        log = self.folder / LOG_FILE
        try:
            output_copy.copy(output, log, self.attempt, self._log_limit, whole=False)
        except (a.Unreachable, a.Unreadable, OSError):
            pass  # begun anew at the next poll; at the end all of it is read, and errors reported

    def copy_all(self, backend: a.Backend) -> output_copy.OutputCopy:
        """Copy all output of the attempt, which is over. Raises OSError, Unreadable."""
        output = backend.output(self.attempt, self.folder, follow=False)
        return output_copy.copy(output, self.folder / LOG_FILE, self.attempt, self._log_limit)

    def stop_copy(self) -> None:
        """End the thread that copies its output."""
        if self._output is not None and self._copier is not None:
            self._output.close()
            self._copier.join()
            self._output = self._copier = None


class Agent:
    """Carry out commands in a cluster, and report."""

    def __init__(
        self, backend: a.Backend, deck: str, report: Callable[[a.Report], None], log_limit: int = 0
    ) -> None:
        self._backend, self._deck, self._report = backend, deck, report
        self._log_limit = log_limit
        self._attempts: dict[str, FollowedAttempt] = {}
        self._failures = 0
        self._listed = float("-inf")

    @property
    def pause(self) -> float:
        """Return the seconds until the next poll of the cluster."""
        if self._failures:
            return BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1]
        return POLL_S if self._attempts else IDLE_S

    @property
    def following(self) -> list[str]:
        """Return the attempts that are followed."""
        return list(self._attempts)

    def execute(self, command: a.Command) -> None:
        """Carry out a command."""
        try:
            match command:
                case a.SubmitAttempt():
                    self._submit(command)
                case a.Follow(job, attempt):
                    self._follow(job, attempt)
                case a.Halt(attempt):
                    self._backend.halt(attempt)
        except a.Unreachable as problem:
            self._report_unavailable(problem)

    def _submit(self, request: a.SubmitAttempt) -> None:
        """Submit the attempt, and follow it: the next poll shows whether the cluster got it."""
        if request.again:
            self._follow(request.job, request.attempt)
        try:
            session = self._backend.session()
        except a.Unreachable as problem:
            self._report_not_submitted(request, problem.message)
            raise
        if session != request.session:
            self._report_not_submitted(request, phrase("it was restarted meanwhile"))
            return
        followed = self._follow(request.job, request.attempt)
        try:
            self._backend.submit(request, self._deck)
        except a.Refused as refusal:
            now = time.time()
            error = phrase("the cluster refuses it: {problem}", problem=refusal.message)
            try:
                self._finish(followed, Exit(request.attempt, now, now, None, error), "")
            except OSError as problem:
                del self._attempts[request.attempt]
                why = phrase(
                    "that the cluster refuses it cannot be stored: {problem}",
                    problem=str(problem.strerror),
                )
                self._report(a.NotSubmitted(request.job, request.attempt, why))
        else:
            self._report_acknowledged(followed)

    def _follow(self, job: int, attempt: str) -> FollowedAttempt:
        return self._attempts.setdefault(attempt, FollowedAttempt(job, attempt, self._log_limit))

    def _report_not_submitted(self, request: a.SubmitAttempt, why: Message) -> None:
        if not request.again:
            self._report(a.NotSubmitted(request.job, request.attempt, why))

    def poll(self) -> None:
        """Report whether the cluster answers, and how each attempt goes on."""
        try:
            session, ours = self._backend.session(), None
            if time.monotonic() - self._listed > LIST_S:
                ours = tuple(self._backend.attempts(self._deck))
                self._listed = time.monotonic()
            self._report(a.Available(session, ours))
            for followed in tuple(self._attempts.values()):
                self._poll_attempt(followed, session)
            self._failures = 0
        except a.Unreachable as problem:
            self._report_unavailable(problem)

    def _report_unavailable(self, problem: a.Unreachable) -> None:
        self._failures += 1
        self._listed = float("-inf")
        for followed in self._attempts.values():
            followed.stop_copy()
            followed.note = None
        self._report(a.Unavailable(problem.message))

    def _poll_attempt(self, followed: FollowedAttempt, session: str) -> None:
        status = self._backend.status(followed.attempt, followed.folder)
        if status is None:
            followed.stop_copy()
            del self._attempts[followed.attempt]
            self._report(a.Missing(followed.job, followed.attempt, session))
            return
        self._report_acknowledged(followed)
        if status.phase == "over":
            self._conclude(followed, status)
            return
        if status.phase == "running":
            followed.start_copy(self._backend)
        self._report_note(followed, "" if status.phase == "running" else status.note)

    def _conclude(self, followed: FollowedAttempt, status: a.Status) -> None:
        """Copy all of the attempt's output, and only then report that it is over."""
        followed.stop_copy()
        try:
            read = followed.copy_all(self._backend)
            self._finish(followed, *_ending(followed.attempt, status, read.report, read.uncapped))
        except OSError as problem:
            self._report_note(
                followed,
                phrase("its output cannot be stored: {problem}", problem=str(problem.strerror)),
            )
        except a.Unreadable as problem:
            followed.unread += 1
            self._report_note(
                followed, phrase("its output cannot be read: {problem}", problem=problem.message)
            )
            if followed.unread > MAX_UNREAD:  # the machine it ran on is gone
                self._finish(followed, *_ending(followed.attempt, status, None))

    def _finish(self, followed: FollowedAttempt, record: Exit, result: str) -> None:
        write_records(followed.folder, record, result)
        self._attempts.pop(followed.attempt, None)
        self._report(a.Ended(followed.job, followed.attempt))

    def _report_acknowledged(self, followed: FollowedAttempt) -> None:
        if not followed.acknowledged:
            followed.acknowledged = True
            self._report(a.Acknowledged(followed.job, followed.attempt))

    def _report_note(self, followed: FollowedAttempt, note: Message) -> None:
        note = note[:MAX_NOTE] if isinstance(note, str) else note
        if followed.note != note:
            followed.note = note
            self._report(a.Progressing(followed.job, followed.attempt, note))


def _ending(
    attempt: str, status: a.Status, report: output_copy.FinalReport | None, uncapped: str = ""
) -> tuple[Exit, str]:
    """Return the exit record and the Result, by the cluster's status where there is no report."""
    if report is not None:
        end = (report.started, report.ended, report.code, report.error, report.over)
        return Exit(attempt, *end, uncapped), report.result
    ended = status.ended or time.time()
    started = status.started or ended
    if not status.failed:
        return Exit(attempt, started, ended, 0, "", uncapped=uncapped), ""
    error = status.note or phrase("the cluster does not report how it ended")
    return Exit(attempt, started, ended, None, error, uncapped=uncapped), ""


def make_backend(config: a.Config) -> a.Backend:
    """Return the backend of the cluster that the settings name."""
    return Ray(config.address, config.token_file) if config.where.startswith("ray:") else Slurm()


def main() -> None:
    """Work until the daemon closes our standard input."""
    config = msgspec.json.decode(sys.stdin.buffer.readline(), type=a.Config)
    commands: SimpleQueue[a.Command] = SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    agent = Agent(make_backend(config), config.deck, _write_report, config.log_limit)
    while True:
        agent.poll()
        try:
            agent.execute(commands.get(timeout=agent.pause))
            while True:
                agent.execute(commands.get_nowait())
        except Empty:
            pass


def _read_commands(commands: SimpleQueue[a.Command]) -> None:
    for line in sys.stdin.buffer:
        commands.put(_COMMAND(line))
    os._exit(0)  # at once, whatever the network does: the next daemon's agent may run already


def _write_report(report: a.Report) -> None:
    sys.stdout.buffer.write(_ENCODE(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
