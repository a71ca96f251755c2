"""What the queue and the executors agree on: how attempts are started, and how they ended.

Every executor starts an attempt in the same order, so that nothing runs twice whenever the daemon
dies: the attempt is committed before it is prepared; prepared, it runs nothing; who runs it is
committed; only then it is released.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from gpudeck.language.text import Message, Text, phrase
from gpudeck.scheduler.protocol import log_file as logs
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import NO_RESULT, Job, Lost, Running, Starting
from gpudeck.scheduler.protocol.printed_values import last_values
from gpudeck.scheduler.protocol.submissions import SubmissionRecord
from gpudeck.scheduler.protocol.wait_reasons import WaitReason

LOG_FILE = "log"
RESULT_FILE = "result.json"
ARTEFACTS = "artefacts"
"""The folder in the job's folder that its artefacts are in."""
MAX_RESULT = 2**21
"""Bytes of a Result file; a larger one is not read."""
_PRINTED = 2**18
"""The bytes at the end of a log in which values are looked for."""
_ABSENT = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL)
)
"""Errors of a file that does not exist, or is a link, a pipe, a socket or a folder."""
_SPARE_DEPTH = 500
"""Levels by which a result must still decode, as replies and the store embed it deeper."""


class Exit(msgspec.Struct, frozen=True):
    """Describe the end of an attempt, as its runner recorded it."""

    attempt: str
    started: float
    ended: float
    code: int | None
    error: Message
    """Why it could not be started; empty where it was."""
    over: float = 0.0
    """The time limit that ended it, in seconds; 0 where none did."""
    uncapped: str = ""
    """Why its log is larger than its limit, in a sentence; empty where it is not."""
    limited: str = ""
    """What it could not inherit from its submitter, in a sentence; empty where it got all."""
    starved: int = 0
    """The limit of host memory that ended it, in bytes; 0 where none did."""
    left: tuple[int, ...] = ()
    """Processes that it left behind, and that only another user may kill."""
    program: str = ""
    """The program that could not be started; empty where one was, and where `error` says all."""
    folder: str = ""
    """The folder in which it could not be started."""
    folder_gone: bool = False
    """True where there is no such folder, which is why."""


class NeverRan(NamedTuple):
    """An attempt that ended before it ran anything."""

    why: Message
    passing: bool = False
    """True where the cause is not the job's and passes, as a full disk: the job waits for that,
    however often it is tried."""


class Untraceable(NamedTuple):
    """An attempt that may have run, but left no record of its end."""

    why: Message


class Unreadable(NamedTuple):
    """A folder that cannot be read now, so that nothing is known of what is in it."""

    why: str
    forbidden: bool = False
    """True where permissions are the reason."""


Outcome = Exit | NeverRan | Untraceable | Unreadable


class Begun(NamedTuple):
    """Jobs whose attempts began, which the store may have lost."""

    jobs: Collection[Job] = ()
    """The jobs as they were when their newest attempts ended or, for others, began."""
    submissions: Collection[SubmissionRecord] = ()
    """What they were submitted with."""


class Ending(NamedTuple):
    """The end of an attempt with the Result that goes with it."""

    outcome: Outcome
    result: msgspec.Raw = NO_RESULT
    result_problem: str = ""
    """Why there is a Result that can never be read; empty where there is none."""


class GpuTaken(UserError):
    """Signal that another user's queue took a GPU in the moment a job was to start there."""

    def __init__(self, device: str) -> None:
        super().__init__("a GPU that the job was to start on was taken by another user's queue")
        self.device = device


class FolderError(UserError):
    """The job's own folder cannot be used, so that another try would fail, too."""


class FolderUnusable(UserError):
    """The job's folder cannot be used now, and may be usable later."""


def unlimited(problem: Message) -> Text:
    """Return the message that the limits of a job cannot be kept, and why."""
    return phrase(
        "the host memory and CPUs of a job cannot be limited here: {problem}", problem=problem
    )


class Executor:
    """Run attempts. No call waits for anything outside this machine.

    The end of an attempt that was released or adopted is reported to whoever made the executor;
    `outcome` then returns how it ended.
    """

    def prepare(
        self,
        job: Job,
        attempt: str,
        devices: tuple[str, ...],
        submission: SubmissionRecord | None = None,
    ) -> Running:
        """Prepare everything but the command itself, and return who will run it.

        Args:
            job: the job as it waits.
            attempt: the name of the attempt.
            devices: the ids of the devices that it holds.
            submission: what the job was submitted with, which is kept with the evidence.

        Raises:
            FolderError: the job's folder is in the way.
            FolderUnusable: the job's folder cannot be used now.
            GpuTaken: another user's queue holds one of the devices since a moment ago.
            UserError: the attempt cannot be made now. Nothing is left of it.
        """
        raise NotImplementedError

    def abandon(self, running: Running) -> None:
        """Discard an attempt that was prepared and not released."""

    def release(
        self, job: Job, running: Running, env: dict[str, str], devices: Sequence[Device]
    ) -> None:
        """Let the command run. Who runs it must be on disk before."""

    def adopt(self, job: Job) -> None:
        """Watch an attempt that an earlier daemon released. Raises UserError.

        Where it has ended meanwhile, its job is reaped as if it had ended now.
        """

    def leaves_container(self, job: Job) -> bool:
        """Return whether the attempt, whose runner ended, may have left its container, whose end
        takes seconds."""
        return False

    def alive(self, running: Running) -> bool:
        """Return whether the attempt may still be running."""
        raise NotImplementedError

    def end(self, job: Job) -> None:
        """Ask the attempt to end, and kill it after a grace period. Returns at once."""

    def release_devices(self, job: Job) -> None:
        """Release the devices of a job that is suspended. Raises UserError where that is refused,
        and nothing is released then."""

    def take_devices(self, job: Job) -> None:
        """Take the devices of a suspended job again. Raises GpuTaken, UserError."""

    def ask_to_yield(self, job: Job) -> None:
        """Ask a resumable job to save its state and end. May be repeated."""

    def pause_clock(self, job: Job, paused: bool) -> None:
        """Stop the clock of the job's time limit, or let it run on."""

    def kill(self, jobs: Sequence[Job]) -> None:
        """Kill the processes that these attempts left behind."""

    def outcome(self, job: Job) -> Outcome:
        """Return how an attempt ended that is not alive any more."""
        raise NotImplementedError

    def forget(self, attempt: str, job: Job) -> None:
        """Discard what was kept for an attempt that is over, except the evidence that it began.

        Args:
            attempt: the attempt.
            job: the job as it is stored now.
        """

    def forget_all_but(self, attempts: Collection[str]) -> None:
        """Discard the evidence about all other attempts, as the store cannot lose their ends."""

    def limit_problem(self) -> Message:
        """Return why the host memory and CPUs of a job cannot be limited; empty where they can."""
        return ""

    def record_lost(self, job: Job, state: Lost) -> bool:
        """Record that the job's attempt was lost, as its runner did not record its end.

        Returns False where that cannot be written: another attempt could be taken for this one.
        """
        return True

    def begun(self) -> Begun:
        """Return what the evidence of attempts tells. Raises OSError where it cannot be read."""
        return Begun()

    def unrecorded(self, job: Job) -> Job | Unreadable | None:
        """Return the job as it was at or after an attempt of which the store has no record.

        None where there is none. Its state is Starting where only the attempt's name is known.
        """
        return None


class Executors(Protocol):
    """Give access to the executors of this machine and of the clusters in the settings."""

    def of(self, where: str) -> Executor:
        """Return the executor of this cluster; of this machine for an empty name."""

    def clusters(self) -> Mapping[str, WaitReason | None]:
        """Return for each cluster why it can start nothing now; None where it can."""


def log_file(job: Job) -> Path:
    """Return the file that the newest attempt's output goes to."""
    return paths.job_folder(job.id) / LOG_FILE


def folder_problem(error: OSError) -> Unreadable | None:
    """Return what an error means that a file in a job's folder raised.

    None where there is no such file, or something else in its place, which the job made.
    """
    if error.errno in _ABSENT:
        return None
    why = f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
    return Unreadable(why, isinstance(error, PermissionError))


def artefacts_folder(job: Job) -> Path:
    """Return the folder that the job's artefacts are in."""
    return paths.job_folder(job.spec.artefacts_of or job.id) / ARTEFACTS


def read_file(
    job_id: int, name: str, limit: int, owner: int | None = None
) -> bytes | Unreadable | None:
    """Return the first `limit` bytes of a file in the job's folder; None where there is none.

    With an `owner`, the file of another user is none.
    """
    try:
        with paths.open_plain(paths.job_folder(job_id) / name, owner) as f:
            return f.read(limit)
    except OSError as e:
        return folder_problem(e)


def may_have_begun(job_id: int) -> bool:
    """Return whether an attempt of the job may have begun: its folder was made before that."""
    try:
        paths.job_folder(job_id).lstat()
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def result_name(job: Job) -> str:
    """Return the name of the Result file in the job's folder.

    Where the folder belongs to a shared daemon, it is among the artefacts, which are the user's.
    """
    return RESULT_FILE if job.spec.user is None else f"{ARTEFACTS}/{RESULT_FILE}"


def result_record(job: Job) -> msgspec.Raw | Unreadable:
    """Return the Result file the job left, where it is a JSON object of at most MAX_RESULT bytes.

    A job that left no file has the last values that it printed as its result. Returns NO_RESULT
    where there are none, and for another file.
    """
    data = read_file(job.id, result_name(job), MAX_RESULT + 1, job.spec.user)
    if isinstance(data, Unreadable):
        return data
    if data is None:
        return _printed_result(log_file(job))
    if len(data) > MAX_RESULT:
        return NO_RESULT
    try:
        msgspec.json.decode(data, type=dict[str, object])
        msgspec.json.decode(b"[" * _SPARE_DEPTH + data + b"]" * _SPARE_DEPTH)
    except MALFORMED:
        return NO_RESULT
    # in one line, as it is embedded in messages that end with their line
    return msgspec.Raw(msgspec.json.format(data, indent=0))


def _printed_result(file: Path) -> msgspec.Raw:
    try:
        with paths.open_plain(file) as f:
            tail = logs.read(f, -_PRINTED, _PRINTED).data
    except OSError:
        return NO_RESULT
    lines = re.split(rb"[\r\n]", tail)
    values = last_values(lines[1:] if len(tail) == _PRINTED else lines)
    return msgspec.Raw(msgspec.json.encode(values)) if values else NO_RESULT


def attempt_of(job: Job) -> Starting | Running:
    """Return the state of a job that was started and has not ended."""
    assert isinstance(job.state, Starting | Running)
    return job.state


def running(job: Job) -> Running:
    """Return the state of a job that runs."""
    assert isinstance(job.state, Running)
    return job.state
