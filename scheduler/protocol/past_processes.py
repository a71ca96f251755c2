"""Name the processes whose use of a device is kept in the history."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from gpudeck.scheduler.protocol.devices import Detail, Process

MEMORY, LOAD = PROCESS_FIELDS = ("mem_used", "util")
"""The fields of a process in the history: bytes, and percent of the multiprocessors."""


class Use(msgspec.Struct, frozen=True, array_like=True):
    """Name one process on one device; its key stands for a device's id in the history."""

    device: str
    pid: int
    ticks: int
    """Its start in ticks since boot."""
    name: str
    user: str
    job: int | None = None

    @property
    def key(self) -> str:
        """Return its name in the history, which begins like that of no device."""
        return msgspec.json.encode(self).decode()


USES = ('["', "[#")
"""Keys of processes are from the first of these on, and below the second."""


def use_of(device: str, process: Process) -> Use:
    """Return the name of a process on a device."""
    return Use(device, process.pid, process.ticks, process.name, process.user, process.job)


class PastProcess(msgspec.Struct, frozen=True):
    """Say how a process used a device in a stretch of time."""

    use: Use
    first: float
    """The moment in that time when it was read first, in seconds since the epoch."""
    last: float
    memory: float | None
    """The most bytes of the device's memory that it had; None where the driver reports none."""
    load: float | None
    """Its mean percentage of the multiprocessors; None where the driver reports none."""


class EndedProcess(Process, frozen=True):
    """Describe a process that may have ended, by what the history holds of it."""

    last: float = 0.0
    """The moment when it was read last, in seconds since the epoch; it was first at `start`."""
    job_name: str = ""
    """The name of its job; empty where it has none, or the job is not known any more."""


def as_details(
    found: tuple[PastProcess, ...], names: Mapping[int, str] = MappingProxyType({})
) -> tuple[Detail, ...]:
    """Return past processes by device, as the present ones are listed.

    Args:
        names: The names of jobs by their numbers, as far as they are known.
    """
    devices = dict.fromkeys(one.use.device for one in found)
    return tuple(
        Detail(device, 0.0, (), tuple(_process(p, names) for p in found if p.use.device == device))
        for device in devices
    )


def _process(past: PastProcess, names: Mapping[int, str]) -> EndedProcess:
    use = past.use
    name = "" if use.job is None else names.get(use.job, "")
    return EndedProcess(
        use.pid, use.name, use.user, past.memory, use.job, start=past.first, ticks=use.ticks,
        sm=past.load, last=past.last, job_name=name,
    )  # fmt: skip
