"""What every executor can do, and what an attempt leaves in its job's folder wherever it ran: log, result, artefacts, how it ended.

The order of a start is the same for all, and makes that nothing runs twice whenever the daemon dies: an attempt is committed before
it is prepared; prepared, it runs nothing; who runs it is committed; only then it is released.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from scheduler.protocol import paths
from scheduler.protocol.devices import Device
from scheduler.protocol.errors import MALFORMED, UserError
from scheduler.protocol.jobs import NO_RESULT, Job, Running, Starting

LOG_FILE = "log"
EXIT_FILE = "exit.json"
RESULT_FILE = "result.json"
ATTEMPT_FILE = "attempt"
"""Names the attempt that a cluster was asked for."""
ARTEFACTS = "artefacts"
MAX_RESULT = 2**20
"""Bytes of a Result file; a larger one is not read."""
_SPARE_DEPTH = 500
"""A result is embedded in replies and in the store: it must decode there too, some levels deeper."""


class Exit(msgspec.Struct, frozen=True):
    """What the runner wrote about the end of an attempt."""

    attempt: str
    started: float
    ended: float
    code: int | None
    error: str
    over: float = 0.0
    """The limit of time that ended it, seconds; 0 where none did."""
    uncapped: str = ""
    """Why its log is larger than its limit; empty where it is not."""


class Unstarted(NamedTuple):
    """The attempt ended before it ran anything."""

    why: str


class Lost(NamedTuple):
    """The attempt may have run, and nobody can say how it ended."""

    why: str


Outcome = Exit | Unstarted | Lost


class FolderError(UserError):
    """The job's own folder cannot be used: no use in trying again."""


class Executor(Protocol):
    """Where attempts run. Lives in the daemon's loop: no call waits for anybody outside this machine.

    The end of an attempt that was released or adopted is reported to whoever made the executor; `outcome` then tells how it ended.
    """

    def prepare(self, job: Job, attempt: str, devices: tuple[str, ...]) -> Running:
        """Everything but the command itself. Returns who will run it.

        Raises FolderError where the job's folder is in the way, UserError where the attempt cannot be made now. It has left nothing.
        """

    def abandon(self, running: Running) -> None:
        """What was prepared is not to run."""

    def release(
        self, job: Job, running: Running, env: dict[str, str], devices: Sequence[Device]
    ) -> None:
        """From now on the command may run. Who runs it is on disk."""

    def adopt(self, job: Job) -> None:
        """Look after an attempt that an earlier daemon released. Raises UserError."""

    def alive(self, running: Running) -> bool:
        """Whether the attempt may run on."""

    def end(self, job: Job) -> None:
        """Ask the attempt to end: politely, then by force. Returns at once."""

    def kill(self, jobs: Sequence[Job]) -> None:
        """Kill what these attempts left behind."""

    def outcome(self, job: Job) -> Outcome:
        """How an attempt went that is not alive any more."""


def next_folder(job: Job) -> Path:
    """The folder for the attempt that comes next, ready for it. Raises FolderError."""
    return _used_folder(job) if job.tries else _empty_folder(job.id)


def _empty_folder(job_id: int) -> Path:
    """The job's folder. An attempt that is prepared has never run: what lies there is of another job of this number, from a store
    that was deleted, and is moved aside.
    """
    folder = paths.job_folder(job_id)
    for left in (folder / ARTEFACTS, folder):
        try:
            left.rmdir()  # of an attempt that got no further than this
        except OSError:
            pass  # there is none, or it holds something
    try:
        if os.path.lexists(folder):
            folder.rename(folder.with_name(f"{job_id}.old-{time.time_ns()}"))
    except OSError as e:
        raise FolderError(
            f"the folder {folder} holds an older job of this number, and cannot be moved: {e.strerror}"
        ) from e
    paths.ensure(paths.ensure(folder) / ARTEFACTS)
    return folder


def _used_folder(job: Job) -> Path:
    """The folder of a job that is tried again: what the last attempt said is put aside under its number, its artefacts stay."""
    folder = paths.job_folder(job.id)
    try:
        for name in (LOG_FILE, EXIT_FILE, RESULT_FILE):
            if os.path.lexists(folder / name):
                (folder / name).rename(folder / f"{name}.{job.tries}")
    except OSError as e:
        raise FolderError(
            f"what the last attempt left in {folder} cannot be put aside: {e.strerror}"
        ) from e
    paths.ensure(paths.ensure(folder) / ARTEFACTS)
    return folder


def exit_record(job_id: int, attempt: str, name: str = EXIT_FILE) -> Exit | None:
    """How this attempt ended, None where its runner has not said so. `name`: the record's, where it was put aside."""
    try:
        with paths.open_plain(paths.job_folder(job_id) / name) as f:
            found = msgspec.json.decode(f.read(MAX_RESULT), type=Exit)
    except (OSError, *MALFORMED):
        return None
    return found if found.attempt == attempt else None


def result_record(job_id: int) -> msgspec.Raw:
    """The Result file the job left, where it is a JSON object of a sensible size; else NO_RESULT."""
    try:
        with paths.open_plain(paths.job_folder(job_id) / RESULT_FILE) as f:
            data = f.read(MAX_RESULT + 1)
        msgspec.json.decode(data, type=dict[str, object])
        msgspec.json.decode(b"[" * _SPARE_DEPTH + data + b"]" * _SPARE_DEPTH)
    except (OSError, *MALFORMED):
        return NO_RESULT
    # in one line, as it is embedded in messages that end with their line
    return (
        msgspec.Raw(msgspec.json.format(data, indent=0)) if len(data) <= MAX_RESULT else NO_RESULT
    )


def identity(job: Job, attempt: str) -> dict[str, str]:
    """What an attempt finds in its environment wherever it runs."""
    array = {} if job.spec.index is None else {"GPUDECK_ARRAY_INDEX": str(job.spec.index)}
    return {
        **array,
        "GPUDECK_JOB": str(job.id),
        "GPUDECK_ATTEMPT": attempt,
        "GPUDECK_TRY": str(job.tries + 1),
    }


def attempt_of(job: Job) -> Starting | Running:
    """The state of a job that was started and has not ended."""
    assert isinstance(job.state, Starting | Running)
    return job.state


def running(job: Job) -> Running:
    """The state of a job that runs."""
    assert isinstance(job.state, Running)
    return job.state
