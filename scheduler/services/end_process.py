"""End a process of the user that uses a GPU, and no other process that reuses its pid."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil

from gpudeck.language.text import phrase
from gpudeck.scheduler.background.process_stat import start_time
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError

GRACE_S = 5.0
"""How long a process may take to end after SIGTERM, and again after SIGKILL."""
_DEVICE_FILES = ("/dev/nvidia", "/dev/dxg")
"""Files that a process which uses a GPU has open."""


async def end_process(process: Process) -> None:
    """Send SIGTERM, then SIGKILL, and return once the process is gone.

    Raises:
        NotFound: The process has ended.
        UserError: It belongs to another user, or does not end.
    """
    name = f"process {process.pid} ({process.name})"
    try:
        fd = os.pidfd_open(process.pid)  # names this process for good
    except ProcessLookupError as e:
        raise NotFound(phrase("process {pid} has ended already", pid=process.pid)) from e
    try:
        _check(process)
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(fd, number)
            if await _ends(fd):
                return
    except ProcessLookupError:
        return  # it ended by itself
    except PermissionError as e:
        raise UserError(phrase("you are not permitted to end {name}", name=name)) from e
    finally:
        os.close(fd)
    raise UserError(
        phrase("{name} does not end: it hangs in the kernel, as when its GPU is lost", name=name)
    )


def _check(process: Process) -> None:
    if start_time(process.pid) != process.ticks:
        raise NotFound(
            phrase("process {pid} is another one now. Nothing was ended.", pid=process.pid)
        )
    try:
        owner = psutil.Process(process.pid).uids().real
    except psutil.Error as e:
        raise NotFound(phrase("process {pid} has ended already", pid=process.pid)) from e
    if owner != os.getuid():
        raise UserError(
            phrase(
                "process {pid} ({name}) belongs to {user}; only its owner or root may end it",
                pid=process.pid,
                name=process.name,
                user=process.user,
            )
        )
    if process.kind != "cpu" and not _uses_gpu(process.pid):
        raise UserError(
            phrase(
                "process {pid} has no GPU open here: the driver lists "
                "processes of the whole machine, whose pids have another "
                "meaning in a container. Nothing was ended.",
                pid=process.pid,
            )
        )


def _uses_gpu(pid: int) -> bool:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue  # closed meanwhile
            if any(file in target for file in _DEVICE_FILES):
                return True
    except OSError:
        return False
    return False


async def _ends(fd: int) -> bool:
    """Return True where the process ends within the grace period."""
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
