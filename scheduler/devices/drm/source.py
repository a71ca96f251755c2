"""The AMD and Intel GPUs of this machine as a source of readings; written from the drivers'
documents and not tried on hardware yet.

One that sleeps is not read, which would wake it.
"""

from __future__ import annotations

from pathlib import Path

from gpudeck.language.text import phrase
from gpudeck.scheduler.devices import runtime_power
from gpudeck.scheduler.devices.drm.amd import AmdCard
from gpudeck.scheduler.devices.drm.intel import IntelCard
from gpudeck.scheduler.protocol.absence import Unavailable
from gpudeck.scheduler.protocol.devices import Device, DevicesChanged, NoGpu, Reading, Source

NOTE = "read from sysfs; not tried on hardware yet"
AMD, INTEL = "0x1002", "0x8086"
_PROCESSOR_GRAPHICS = "0000:00:02.0"
"""Where the graphics of an Intel processor are; they are no device of their own here."""


class DrmSource(Source):
    """Read all AMD and Intel cards."""

    def __init__(self) -> None:
        """Find the cards. Raises NoGpu where there is none."""
        self._addresses = _found()
        if not self._addresses:
            raise NoGpu(phrase("no AMD or Intel GPU has a driver"))
        self._cards = [_card(address) for address in self._addresses]
        self._asleep: dict[str, float] = {}
        """When each card that sleeps was first found asleep."""
        self._devices = [
            Device(
                f"{card.kind}-{card.identity or address}",
                index,
                card.name,
                card.kind,
                NOTE,
                {"driver": _driver(address), "PCI address": address},
            )
            for index, (address, card) in enumerate(zip(self._addresses, self._cards, strict=True))
        ]

    def devices(self) -> list[Device]:
        """Return all cards in the order of their addresses."""
        return self._devices

    def read(self, now: float) -> list[Reading]:
        """Return one reading of each card. Raises DevicesChanged where one came or went."""
        if _found() != self._addresses:
            raise DevicesChanged("a GPU came or went")
        return [self._read(i, now) for i in range(len(self._cards))]

    def _read(self, index: int, now: float) -> Reading:
        device, address = self._devices[index].id, self._addresses[index]
        if _sleeps(address):
            since = self._asleep.setdefault(address, now)
            return Reading(device, now, {}, otherwise=Unavailable("asleep"), asleep=since)
        self._asleep.pop(address, None)
        found = self._cards[index].read(now)
        return Reading(device, now, found.values, found.absent, found.methods)


def _found() -> list[str]:
    """Return the addresses of the cards that have a driver."""
    cards = (*runtime_power.find_gpus(AMD), *runtime_power.find_gpus(INTEL))
    return sorted(
        gpu.address
        for gpu in cards
        if gpu.address != _PROCESSOR_GRAPHICS and _driver(gpu.address) in ("amdgpu", "xe", "i915")
    )


def _folder(address: str) -> Path:
    return runtime_power.PCI / address


def _driver(address: str) -> str:
    link = _folder(address) / "driver"
    return link.resolve().name if link.exists() else ""


def _sleeps(address: str) -> bool:
    return runtime_power.read_text(_folder(address) / "power/runtime_status") == "suspended"


def _card(address: str) -> AmdCard | IntelCard:
    folder = _folder(address)
    return (
        AmdCard(folder) if runtime_power.read_text(folder / "vendor") == AMD else IntelCard(folder)
    )
