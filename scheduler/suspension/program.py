"""A program that is suspended: its processes, its memory, and how far its suspension is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import attempt_of
from gpudeck.scheduler.background.process_stat import boot_id, start_time, stat_fields
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.suspended import Phase
from gpudeck.scheduler.suspension.calls import Room

_ROOT = 0


class Member(msgspec.Struct, frozen=True):
    """Name a process for good, with the GPU memory that it holds."""

    pid: int
    ticks: int
    """Its start, in ticks since boot."""
    rooms: tuple[Room, ...] = ()
    """Its memory on each GPU; none for a process that uses no GPU."""

    @property
    def lives(self) -> bool:
        """Return whether the process exists still."""
        return start_time(self.pid) == self.ticks


class Suspension(msgspec.Struct, frozen=True):
    """Hold what must be known to bring a program back, also after a crash of the daemon."""

    name: str
    members: tuple[Member, ...]
    """The processes that use a GPU."""
    tree: tuple[Member, ...]
    """All processes of the program, which are stopped while it is suspended."""
    boot: str
    """The boot in which these processes run."""
    phase: Phase
    since: float
    """When it was suspended, in seconds since the epoch."""
    user: int
    """The owner of the processes."""
    job: int | None = None
    """The job of the queue that it is; None for any other program."""
    attempt: str = ""
    """The attempt of the job."""
    runner: Member | None = None
    """The runner of the job, which runs on and of which all processes of the job descend."""

    @property
    def pid(self) -> int:
        """Return the first process that uses a GPU, by which the program is named."""
        return (self.members or self.tree)[0].pid

    @property
    def lives(self) -> bool:
        """Return whether any of its processes exists still."""
        return any(member.lives for member in self.members or self.tree)

    @property
    def memory(self) -> int:
        """Return the bytes of GPU memory, which the host holds while the program is suspended."""
        return sum(room.memory for member in self.members for room in member.rooms)


def find_program(process: Process, details: Sequence[Detail]) -> Suspension:
    """Return the program of a process: its descendants, too, and what they hold on GPUs.

    Raises:
        NotFound: The process has ended.
        UserError: The driver does not tell how much memory it holds.
    """
    tree = find_tree(process.pid)
    if not tree or tree[0].ticks != process.ticks:
        raise NotFound(phrase("process {pid} has ended already", pid=process.pid))
    return _describe(process.name, tree, details)


def find_job(job: Job, runner: Member, details: Sequence[Detail]) -> Suspension:
    """Return the program of a job: all descendants of its runner, and what they hold on GPUs.

    Raises:
        UserError: It has no processes, or the driver does not tell how much memory they hold.
    """
    name = f"job {job.id} ({job.spec.name})"
    if not (tree := find_tree(runner.pid)[1:]) or not runner.lives:
        raise UserError(phrase("{name} has no processes to suspend", name=name))
    own = {member.pid for member in tree}
    listed = (process for detail in details for process in detail.processes)
    if any(process.job == job.id and process.pid not in own for process in listed):
        raise UserError(
            phrase("{name} has processes that its runner did not start, as in Docker", name=name)
        )
    found = _describe(name, tree, details)
    return msgspec.structs.replace(
        found, job=job.id, attempt=attempt_of(job).attempt, runner=runner
    )


def _describe(name: str, tree: tuple[Member, ...], details: Sequence[Detail]) -> Suspension:
    rooms = {each.pid: _find_rooms(each.pid, details) for each in tree}
    members = tuple(
        msgspec.structs.replace(each, rooms=rooms[each.pid]) for each in tree if rooms[each.pid]
    )
    if (owner := _owner(tree[0].pid)) is None:
        raise UserError(phrase("{name} ended just now", name=name))
    owners = {user for each in tree if (user := _owner(each.pid)) is not None}
    if os.getuid() != _ROOT and owners != {os.getuid()}:
        raise UserError(phrase("{name} has processes of another user", name=name))
    return Suspension(name, members, tree, boot_id(), "suspending", time.time(), owner)


def _owner(pid: int) -> int | None:
    """Return the user of a process; None where it has ended."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError:
        return None


def _find_rooms(pid: int, details: Sequence[Detail]) -> tuple[Room, ...]:
    """Return the memory of a process on each GPU. Raises UserError where the driver hides it."""
    rooms = []
    for detail in details:
        for process in detail.processes:
            if process.pid == pid:
                if process.memory is None:
                    raise UserError(
                        phrase(
                            "the driver does not tell how much GPU memory process {pid} holds, so "
                            "its way back could not be secured",
                            pid=pid,
                        )
                    )
                rooms.append(Room(detail.device, int(process.memory)))
    return tuple(rooms)


def find_tree(pid: int) -> tuple[Member, ...]:
    """Return a process with its descendants."""
    try:
        root = psutil.Process(pid)
        found = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return ()
    ticks = {process.pid: start_time(process.pid) for process in found}
    return tuple(Member(pid, started) for pid, started in ticks.items() if started is not None)


def stop(suspension: Suspension) -> None:
    """Stop all processes of a program, also those that were born since it was looked at."""
    stopped = set[Member]()
    while new := _find_all(suspension) - stopped:
        _signal(new, signal.SIGSTOP)
        stopped |= new


def proceed(suspension: Suspension) -> None:
    """Let the processes of a program go on. A stopped process would block the driver's calls, in
    which a thread of it does the work."""
    _signal(_find_all(suspension), signal.SIGCONT)


def kill(suspension: Suspension) -> None:
    """End all processes of a program."""
    _signal(_find_all(suspension), signal.SIGKILL)


def _find_all(suspension: Suspension) -> set[Member]:
    """Return the processes of a program as they are now."""
    root = suspension.runner or suspension.tree[0]
    found = find_tree(root.pid) if root.lives else ()
    known = (member for member in suspension.tree if member.lives)
    return {*known, *found} - {suspension.runner}


def is_stopped(member: Member) -> bool:
    """Return whether a process is stopped by a signal."""
    fields = stat_fields(member.pid)
    return fields is not None and fields[0] == b"T"


def _signal(tree: Iterable[Member], number: signal.Signals) -> None:
    for member in tree:
        # it ended in this moment, or is another user's, as by sudo
        with suppress(ProcessLookupError, PermissionError):
            _send(member, number)


def _send(member: Member, number: signal.Signals) -> None:
    """Send a signal to a process if it lives. Raises ProcessLookupError, PermissionError."""
    try:
        fd = os.pidfd_open(member.pid)
    except ProcessLookupError:
        raise
    except OSError:  # no more files can be opened
        if member.lives:
            os.kill(member.pid, number)
        return
    try:
        if member.lives:
            signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)
