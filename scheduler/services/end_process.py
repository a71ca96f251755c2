"""End a process of the user that uses a GPU: this very process, and nothing else that may have its number by now."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil

from scheduler.executors.local import start_time
from scheduler.protocol.devices import Detail, Process
from scheduler.protocol.errors import NotFound, UserError

GRACE_S = 5.0
"""How long a process may take to end by itself once it was asked, and once more after it was killed."""
_NODES = ("/dev/nvidia", "/dev/dxg")
"""Files that a process which uses a GPU has open."""


def find(details: tuple[Detail, ...], pid: int, ticks: int) -> Process:
    """The process as the devices list it now. Raises NotFound where it is not among those that use a GPU."""
    for detail in details:
        for process in detail.processes:
            if process.pid == pid and ticks and process.ticks == ticks:
                return process
    raise NotFound(
        f"process {pid} does not use a GPU any more, or is not the one you saw. Nothing was ended. See: gpudeck processes"
    )


async def end(process: Process) -> None:
    """Ask it to end, and kill it where it does not. Returns once it is gone.

    Raises NotFound where its number means another process by now, UserError where it is not ours to end or does not end.
    """
    try:
        fd = os.pidfd_open(
            process.pid
        )  # from here on the number cannot come to mean another process
    except ProcessLookupError as e:
        raise NotFound(f"process {process.pid} has ended already") from e
    try:
        _check(process)
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(fd, number)
            if await _gone(fd):
                return
    except ProcessLookupError:
        return  # it ended by itself
    except PermissionError as e:
        raise UserError(f"process {process.pid} ({process.name}) may not be ended by you") from e
    finally:
        os.close(fd)
    raise UserError(
        f"process {process.pid} ({process.name}) does not end: it hangs in the kernel, as when its GPU is lost"
    )


def _check(process: Process) -> None:
    if start_time(process.pid) != process.ticks:
        raise NotFound(
            f"process {process.pid} is not the one that used the GPU. Nothing was ended."
        )
    try:
        owner = psutil.Process(process.pid).uids().real
    except psutil.Error as e:
        raise NotFound(f"process {process.pid} has ended already") from e
    if owner != os.getuid():
        raise UserError(
            f"process {process.pid} ({process.name}) belongs to {process.user}; only its owner or root may end it"
        )
    if not _holds_gpu(process.pid):
        raise UserError(
            f"process {process.pid} holds no GPU open here: the driver lists processes of the whole machine, "
            "and in a container their numbers mean others. Nothing was ended."
        )


def _holds_gpu(pid: int) -> bool:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue  # closed meanwhile
            if any(node in target for node in _NODES):
                return True
    except OSError:
        return False
    return False


async def _gone(fd: int) -> bool:
    """Whether the process ends within the grace."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        async with asyncio.timeout(GRACE_S):
            await ended.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
