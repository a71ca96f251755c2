"""Find the processes that hold the locks of GPUs, as far as this user may see them.

The kernel names no process for a lock of an open file description. Only the descriptors in
/proc/PID/fdinfo tell, which their user and root may read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil

from gpudeck.scheduler.background.process_stat import read_proc
from gpudeck.scheduler.executors.lock_file import ranges_of
from gpudeck.scheduler.protocol.users import user_name
from gpudeck.scheduler.protocol.wait_reasons import Holder, LockHolder, Unseen

AGAIN_S = 10.0
"""Seconds after which holders are searched again."""
_LOCK = re.compile(rb"OFDLCK +ADVISORY +\w+ +-?\d+ +\S+ +(\d+) +(\d+|EOF)")
_END = 2**63


class HolderSearch:
    """Search in a thread, as a machine may have thousands of processes."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "lock holders")
        self._search: Future[Mapping[str, Holder]] | None = None
        self._devices: frozenset[str] = frozenset()
        self._began = 0.0

    def latest(
        self, devices: Collection[str], files: Sequence[Path], own: Iterable[int]
    ) -> Mapping[str, Holder]:
        """Return who holds these GPUs; those are missing that were not searched yet.

        Args:
            devices: the GPUs of which other queues hold something.
            files: the files of the locks.
            own: the runners of this queue.
        """
        wanted = frozenset(devices)
        done = self._search is None or self._search.done()
        late = time.monotonic() > self._began + AGAIN_S
        if wanted and done and (wanted != self._devices or late):
            self._began, self._devices = time.monotonic(), wanted
            self._search = self._thread.submit(find_holders, wanted, files, {*own, os.getpid()})
        if self._search is None or not self._search.done():
            return {}
        return {device: who for device, who in self._search.result().items() if device in wanted}


def find_holders(
    devices: Collection[str], files: Sequence[Path], own: Collection[int]
) -> dict[str, Holder]:
    """Return a process that holds each GPU, other than those of `own`."""
    found: dict[str, Holder] = {device: Unseen() for device in devices}
    names = {os.fspath(file) for file in files}
    for pid in psutil.pids():
        if pid in own:
            continue
        for first, last in _locked_by(pid, names):
            for device in devices:
                if any(first < end and last >= start for start, end in ranges_of(device)):
                    found[device] = LockHolder(pid, _user_of(pid))
    return found


def _locked_by(pid: int, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last byte of each lock that a process holds in these files."""
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)  # noqa: PTH208 - many are read: no Path
    except OSError:  # it has ended, or belongs to another user
        return
    for number in numbers:
        try:
            if os.readlink(f"{folder}/{number}") not in names:  # noqa: PTH115 - as above
                continue
        except OSError:
            continue
        for lock in _LOCK.finditer(read_proc(f"/proc/{pid}/fdinfo/{number}") or b""):
            yield int(lock[1]), _END if lock[2] == b"EOF" else int(lock[2])


def _user_of(pid: int) -> str:
    try:
        return user_name(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return ""
