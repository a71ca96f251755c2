"""Let GPUs sleep: one that sleeps is not opened, and one that nobody uses is closed.

An open handle keeps a GPU awake, and opening one wakes it. So the kernel is asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gpudeck.scheduler.devices import runtime_power
from gpudeck.scheduler.devices.runtime_power import PciGpu
from gpudeck.scheduler.protocol.absence import Unavailable
from gpudeck.scheduler.protocol.devices import Detail, Device, DevicesChanged, Reading, Source
from gpudeck.scheduler.protocol.errors import UserError

QUIET_S = 30.0
"""A GPU that nobody uses for this long is closed."""
SETTLE_S = 30.0
"""The time in which a closed GPU should fall asleep; one that does not is kept awake by others."""
AGAIN_S = 600.0
"""The pause before a GPU that others keep awake is closed again."""


class Unmatched(DevicesChanged):
    """Signal that the driver's GPUs are not those of the kernel's list."""

    def __init__(self) -> None:
        super().__init__("the driver has other GPUs than the kernel's list")


@dataclass
class _Gpu:
    """Hold what is known of one GPU."""

    address: str
    index: int
    closed: bool
    device: Device | None = None
    """As it was when it was open last."""
    asleep: float | None = None
    """When it was first found asleep."""
    quiet: float | None = None
    """Since when nobody uses it."""
    settled: float = 0.0
    """When a closed GPU that is still awake is opened again."""
    again: float = 0.0
    """The earliest time at which it is closed."""


class SleepAware(Source):
    """Read the GPUs that are awake, and report the others as asleep.

    Args:
        open_gpus: Opens all GPUs except those with these indices.
        now: Seconds since the epoch.
    """

    def __init__(self, open_gpus: Callable[[Collection[int]], Source], now: float) -> None:
        self._open_gpus, self._wanted = open_gpus, False
        self._gpus = [_Gpu(g.address, i, g.asleep) for i, g in enumerate(runtime_power.find_gpus())]
        self._source: Source | None = None
        self._closed: frozenset[int] | None = None
        """The GPUs that the open source leaves out; None before the first."""
        self._follow(now)
        self._reopen()

    def wake(self, wanted: bool) -> None:
        """Open all GPUs, as a job needs one, or let them sleep again."""
        self._wanted = wanted

    def devices(self) -> list[Device]:
        """Return all GPUs by index; one that was never awake has no UUID yet."""
        found = self._source.devices() if self._source is not None else []
        known = {device.index for device in found}
        found += [_device(gpu) for gpu in self._gpus if gpu.index not in known]
        return sorted(found, key=lambda device: (device.index, device.instance))

    def read(self, now: float) -> list[Reading]:
        """Return one reading of each GPU; those of closed ones are empty. Raises DevicesChanged."""
        self._follow(now)
        try:
            self._reopen()
        except UserError as e:
            raise DevicesChanged(str(e)) from e
        readings = [] if self._source is None else self._source.read(now)
        by_id = {reading.device: reading for reading in readings}
        for gpu in self._gpus:
            if not gpu.closed and gpu.device and (reading := by_id.get(gpu.device.id)):
                gpu.quiet = (now if gpu.quiet is None else gpu.quiet) if _unused(reading) else None
        return [*readings, *(_closed(gpu, now) for gpu in self._gpus if gpu.closed)]

    def occupancy(self, now: float) -> list[Reading]:
        """Return memory and processes of the GPUs that are open."""
        return [] if self._source is None else self._source.occupancy(now)

    def sample(self) -> None:
        """Take one sample of the GPUs that are open."""
        if self._source is not None:
            self._source.sample()

    def details(self, now: float) -> list[Detail]:
        """Return the details of the GPUs that are open."""
        return [] if self._source is None else self._source.details(now)

    def close(self) -> None:
        """Close all GPUs."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _follow(self, now: float) -> None:
        """Decide which GPUs are closed, by what the kernel says."""
        states = runtime_power.find_gpus()
        if [state.address for state in states] != [gpu.address for gpu in self._gpus]:
            raise DevicesChanged("a GPU came or went")
        for gpu, state in zip(self._gpus, states, strict=True):
            gpu.asleep = (gpu.asleep or now) if state.asleep else None
            if self._wanted:
                gpu.closed, gpu.quiet = False, None
            elif gpu.closed:
                _open_awake(gpu, now)
            elif state.asleep or _may_close(gpu, state, now):
                gpu.closed, gpu.settled, gpu.quiet = True, now + SETTLE_S, None

    def _reopen(self) -> None:
        """Open exactly the GPUs that are not closed."""
        closed = frozenset(gpu.index for gpu in self._gpus if gpu.closed)
        if closed == self._closed and (self._source or len(closed) == len(self._gpus)):
            return
        self.close()
        self._closed = closed
        if len(closed) < len(self._gpus):
            self._source = self._open_gpus(closed)
            whole = [device for device in self._source.devices() if not device.instance]
            found = {device.index: device for device in whole}
            if found.keys() | closed != {gpu.index for gpu in self._gpus}:
                self.close()
                raise Unmatched  # as in a container that has some of the machine's GPUs
            for gpu in self._gpus:
                gpu.device = found.get(gpu.index, gpu.device)


def _open_awake(gpu: _Gpu, now: float) -> None:
    """Open a closed GPU that somebody woke, or that does not fall asleep."""
    if gpu.asleep is not None:
        gpu.settled = 0.0  # whoever wakes it uses it
    elif now >= gpu.settled:
        gpu.again = now + AGAIN_S if gpu.settled else 0.0
        gpu.closed = False


def _may_close(gpu: _Gpu, state: PciGpu, now: float) -> bool:
    quiet = gpu.quiet is not None and now - gpu.quiet >= QUIET_S
    return quiet and state.can_sleep and now >= gpu.again


def _unused(reading: Reading) -> bool:
    used = reading.processes or reading.drawing or reading.values.get("util", 0.0)
    return bool(reading.values) and not used


def _device(gpu: _Gpu) -> Device:
    if gpu.device is not None:
        return gpu.device
    return Device(f"pci-{gpu.address}", gpu.index, "NVIDIA GPU", "nvidia")


def _closed(gpu: _Gpu, now: float) -> Reading:
    cause = Unavailable("falling asleep" if gpu.asleep is None else "asleep")
    return Reading(_device(gpu).id, now, {}, otherwise=cause, asleep=gpu.asleep)


def aware(open_gpus: Callable[[Collection[int]], Source], now: float) -> Source:
    """Return the GPUs as a source that lets them sleep, where the kernel can suspend any."""
    if any(gpu.can_sleep or gpu.asleep for gpu in runtime_power.find_gpus()):
        try:
            return SleepAware(open_gpus, now)
        except Unmatched:
            pass
    return open_gpus(())
