"""The lease of a GPU: one process, the assistant's, has it while nobody else needs it, and has left it a tenth of a second after.

A lease begins with the tenant's request and ends with its process, as only the end of a process frees all of its memory. Told to leave,
it ends by itself, or is killed (also where it was stopped). A device counts as left once a reading shows the memory free: until then
the jobs that were started there wait at their gates.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

from scheduler.devices.processes import ProcessTable
from scheduler.protocol.devices import Reading
from scheduler.protocol.errors import UserError

KILL_S = 0.1
"""After so long a tenant that was told to leave is killed."""
WATCH_S = 0.2
"""How often a leased device is looked at for others."""
FREE_S = 0.01
"""How often a device is looked at whose tenant has ended."""
TRUST_S = 1.0
"""After so long the tenant's memory counts as free where nobody sees it: others may have taken it at once, or nothing can be read."""
SLACK = 256 * 2**20
"""Bytes that a device may have less after a tenant than before it."""


class LeaseSlot:
    """At most one lease. Lives in the daemon's loop.

    `glance` asks for a reading that is then given to `see`; `left` is called when a device is free again.
    """

    def __init__(self, glance: Callable[[], None], left: Callable[[], None]) -> None:
        self._glance, self._left = glance, left
        self._lease: _Lease | None = None

    @property
    def device(self) -> str | None:
        """Id of the device that the tenant has, or has not quite left yet."""
        return self._lease.device if self._lease is not None else None

    @property
    def stays(self) -> bool:
        """Whether there is a tenant that was not told to leave."""
        return self._lease is not None and not self._lease.why and self._lease.ended is None

    @property
    def trouble(self) -> str:
        """A tenant that ended and still has its memory; empty where all is well."""
        lease = self._lease
        if lease is None or lease.ended is None or time.monotonic() - lease.ended < TRUST_S:
            return ""
        return f"the assistant (pid {lease.pid}) has ended, but its GPU still lists it: jobs there wait for the driver to let go of it"

    def grant(self, reading: Reading, pid: int, evict: Callable[[str], None]) -> None:
        """Lease the device that was read so to the process. `evict(why)` tells it to leave. Raises UserError where it cannot be watched."""
        loop = asyncio.get_running_loop()
        try:
            lease = _Lease(reading, pid, evict)
        except OSError as e:
            raise UserError(
                f"the process {pid} that asks for a GPU cannot be watched: {e.strerror}"
            ) from e
        self._lease = lease
        loop.add_reader(lease.fd, self._ended, lease)
        loop.call_soon(self._watch, lease)

    def evict(self, why: str) -> bool:
        """Tell the tenant to leave, once; False where it was told already, or there is none."""
        if not self.stays or (lease := self._lease) is None:
            return False
        lease.why = why
        lease.evict(why)
        asyncio.get_running_loop().call_later(KILL_S, lease.kill)
        return True

    def see(self, reading: Reading) -> None:
        """What was read of a device: perhaps the tenant that ended has left it."""
        lease = self._lease
        if lease is not None and lease.device == reading.device and lease.ended is not None:
            lease.last = reading
            self._settle(lease)

    def _watch(self, lease: _Lease) -> None:
        """Look again and again: for others while it lasts, for free memory after its end."""
        if lease is not self._lease:
            return
        self._glance()
        if lease.ended is not None:
            self._settle(lease)
        hurry = lease.ended is not None and time.monotonic() - lease.ended < TRUST_S
        asyncio.get_running_loop().call_later(FREE_S if hurry else WATCH_S, self._watch, lease)

    def _ended(self, lease: _Lease) -> None:
        asyncio.get_running_loop().remove_reader(lease.fd)
        lease.end()
        self._watch(lease)

    def _settle(self, lease: _Lease) -> None:
        if lease is self._lease and lease.left():
            self._lease = None
            self._left()


class _Lease:
    """Raises OSError where the process is gone or cannot be watched."""

    def __init__(self, reading: Reading, pid: int, evict: Callable[[str], None]) -> None:
        self.device, self.pid, self.evict = reading.device, pid, evict
        self.free = reading.values.get("mem_free")
        """Bytes that were free before it came."""
        self.why = ""
        """Why it must leave; empty while it may stay."""
        self.ended: float | None = None
        """When its process had ended, monotonic seconds."""
        self.last: Reading | None = None
        """The device as it was read last since then."""
        self.fd = os.pidfd_open(pid)

    def kill(self) -> None:
        """By the descriptor, which names this very process. It works on one that was stopped, too."""
        if self.ended is None:
            try:
                signal.pidfd_send_signal(self.fd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended in this moment

    def end(self) -> None:
        os.close(self.fd)
        self.ended = time.monotonic()

    def left(self) -> bool:
        """Whether nothing of it is on the device any more."""
        assert self.ended is not None
        waited = time.monotonic() - self.ended >= TRUST_S
        if self.last is None:
            return waited
        if any(process.assistant for process in self.last.processes):
            return False
        free = self.last.values.get("mem_free")
        if waited or free is None or self.free is None:
            return True
        return (
            free + sum(process.memory or 0.0 for process in self.last.processes)
            >= self.free - SLACK
        )


def end_stray(pid: int) -> None:
    """Kill an assistant that is on a GPU without a lease: one that outlived the daemon which gave it one."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if (
            ProcessTable().describe({pid: None})[0].assistant
        ):  # looked at anew: the pid may have come to mean another
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended in this moment
    finally:
        os.close(fd)
