"""Drain GPUs with faults of the hardware, until their user takes them back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.draining import drained, is_drained
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import label
from gpudeck.scheduler.services.fault_watch import FaultWatch
from gpudeck.scheduler.services.notices import NoticeBoard


class FaultDrain:
    """Change the settings where a GPU has a new fault, and say so beside the alert."""

    def __init__(self, file: Path, notices: NoticeBoard) -> None:
        """Read the known faults from a file."""
        self._faults, self._notices = FaultWatch(file), notices

    def add(
        self, readings: Iterable[Reading], devices: Sequence[Device], current: Settings
    ) -> Settings:
        """Return the settings, in which every GPU with a new fault is drained."""
        gpus = {device.id: device for device in devices if device.kind == "nvidia"}
        found = self._faults.add(reading for reading in readings if reading.device in gpus)
        with self._notices.catch("faults"):
            self._faults.save()
        new = current
        for gpu in map(gpus.__getitem__, found):
            if not is_drained(new, gpu):
                new = settings.changed(new, {"drained": drained(new, [gpu], drain=True)})
        if new is not current:
            with self._notices.catch("drained"):
                settings.save(new)
        for gpu in gpus.values():
            if gpu.id in found:
                text = (
                    f"{label(gpu)} is drained after a hardware fault: {found[gpu.id]}. "
                    f"Once it is reset or replaced: gpudeck undrain {gpu.index}"
                )
                self._notices.set(f"fault {gpu.id}", text)
            elif not is_drained(new, gpu):
                self._notices.set(f"fault {gpu.id}", None)
        return new
