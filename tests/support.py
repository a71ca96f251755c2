"""Wait for conditions, provide state folders, and find leftover processes, for all tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

import msgspec
import pytest

from gpudeck.language.rendering import json_in_english
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone

T = TypeVar("T")
LACKS = "this machine lacks"
"""Begins the reason of a test that is skipped because a program is not installed."""


def eventually(condition: Callable[[], T], timeout: float = 60.0) -> T:
    """Return the first true value of `condition`, or fail the test if there is none in time."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {timeout:.0f} s; last value: {value!r}"
        time.sleep(0.01)
    return value


@contextmanager
def state_folder(folder: Path) -> Iterator[Path]:
    """Set GPUDECK_HOME to `folder`, and end every process that used it at the end."""
    with pytest.MonkeyPatch.context() as patch, NamedTemporaryFile() as locks:
        patch.setenv("GPUDECK_HOME", str(folder))
        # recorded GPUs have the same UUID in all tests, which run at once
        patch.setenv("GPUDECK_GPU_LOCKS", locks.name)
        try:
            yield folder
        finally:
            patch.setenv("GPUDECK_HOME", str(folder))  # a test may have changed it
            try:
                with Client(start=False, timeout=5.0) as deck:
                    deck.stop_daemon()
            except DaemonGone:
                pass
            while users := users_of(folder):
                for pid in users:
                    send(pid, signal.SIGKILL)
                time.sleep(0.01)


def users_of(folder: Path) -> list[int]:
    """Return the PIDs of other processes with `folder` in their environment or command line."""
    needle = os.fsencode(folder)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment, command = (
                    (entry / "environ").read_bytes(),
                    (entry / "cmdline").read_bytes(),
                )
            except OSError:
                continue  # the process has ended
            if b"GPUDECK_HOME=" + needle in environment.split(b"\0") or needle + b"/" in command:
                found.append(int(entry.name))
    return found


def command_of(pid: int) -> bytes:
    """Return the command line of a process, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def lives(pid: int) -> bool:
    """Return True if the process runs and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] not in (b"Z", b"X")


def in_english(value: Any) -> Any:
    """Return a value as programs read it: as JSON has it, with its texts in English."""
    return msgspec.json.decode(json_in_english(msgspec.json.encode(value)))
