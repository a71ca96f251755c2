"""One lease: the GPU that the assistant's process may use while nobody else needs it.

A lease begins with the process's request and ends with the process, as only the end of a process
frees all of its memory. A process that is evicted ends by itself, or is killed. Its device is free
once a reading shows the memory free; until then jobs that were started there wait at their gates.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from gpudeck.language.text import Message
from gpudeck.scheduler.devices.processes import ProcessTable
from gpudeck.scheduler.protocol.devices import Reading

TRUST_S = 1.0
"""The memory counts as free this long after the process ended, even where no reading shows it:
other processes may have taken it at once, or nothing can be read."""
SLACK = 256 * 2**20
"""Bytes by which a device may have less free memory after the lease than before it."""


class Lease:
    """Lease a device to a process.

    Args:
        reading: The device as it was read last.
        pid: The process.
        evict: Tells the process why it must end.

    Raises:
        OSError: The process is gone or cannot be watched.
    """

    def __init__(self, reading: Reading, pid: int, evict: Callable[[Message], None]) -> None:
        self.device, self.pid = reading.device, pid
        self.fd = os.pidfd_open(pid)
        self.evicted = False
        """The process was told to end."""
        self._ended: float | None = None
        self._evict = evict
        self._free_before = reading.values.get("mem_free")
        self._last: Reading | None = None
        """The device as it was read last since the end of the process."""

    @property
    def running(self) -> bool:
        """Return True until the process has ended."""
        return self._ended is None

    @property
    def overdue(self) -> bool:
        """Return True where the process ended so long ago that its memory should be free."""
        return self._ended is not None and time.monotonic() - self._ended >= TRUST_S

    def evict(self, reason: Message) -> None:
        """Tell the process to end."""
        self.evicted = True
        self._evict(reason)

    def kill(self) -> None:
        """Kill the process, also one that is stopped, where it has not ended."""
        if self.running:
            try:
                signal.pidfd_send_signal(self.fd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended in this moment

    def end(self) -> None:
        """Note that the process has ended."""
        os.close(self.fd)
        self._ended = time.monotonic()

    def add_reading(self, reading: Reading) -> None:
        """Take a new reading of the device."""
        if not self.running:
            self._last = reading

    def is_over(self) -> bool:
        """Return True where the process has ended and the device shows its memory free."""
        if self.running:
            return False
        if self._last is None:
            return self.overdue
        if any(process.assistant for process in self._last.processes):
            return False
        free = self._last.values.get("mem_free")
        if self.overdue or free is None or self._free_before is None:
            return True
        others = sum(process.memory or 0.0 for process in self._last.processes)
        return free + others >= self._free_before - SLACK


def end_stray(pid: int) -> None:
    """Kill an assistant that uses a GPU without a lease, such as one that outlived a daemon."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # described anew: the pid may have been reused
        if ProcessTable().describe({pid: None})[0].assistant:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended in this moment
    finally:
        os.close(fd)
