"""Intel GPUs by the files of xe and i915.

Neither driver has a file for utilisation or for the memory in use. The former is computed from the
time that the engines spent in their idle state; the latter is absent.

Source: the kernel's Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon, -i915-hwmon, and
Documentation/gpu/i915.rst.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gpudeck.language.text import phrase
from gpudeck.scheduler.devices.drm.files import Rate, Values, number
from gpudeck.scheduler.devices.runtime_power import read_text
from gpudeck.scheduler.protocol.absence import Absence

_MICRO, _MILLI = 1e-6, 1e-3
METHOD = phrase("share of time in which the graphics engine was not in its idle state (C6)")
_POWER_METHOD = phrase("energy counter of the card, over the interval")


class IntelCard:
    """Read one card."""

    kind: Literal["intel"] = "intel"
    identity = ""
    """Intel's drivers report no number of the card."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._energy = Rate()
        self._idle = Rate()

    @property
    def name(self) -> str:
        """Return the card's name, which the driver does not know."""
        return f"Intel GPU {read_text(self._folder / 'device')}"

    def read(self, now: float) -> Values:
        """Return everything that the driver reports."""
        found = Values()
        idle = self._idle.read(self._idle_seconds(), now)
        busy: float | Absence = idle
        if isinstance(idle, float):
            busy = 100 * min(max(1 - idle, 0.0), 1.0)
        found.set("util", busy, METHOD)
        for sensors in sorted(self._folder.glob("hwmon/hwmon*"))[:1]:
            self._sensors(sensors, now, found)
        found.add("clock_sm", [*self._gt("freq0/act_freq"), *self._cards("gt_act_freq_mhz")])
        found.add("clock_sm_max", [*self._gt("freq0/max_freq"), *self._cards("gt_max_freq_mhz")])
        return found

    def _idle_seconds(self) -> float | Absence:
        """Return the time that the engine has been idle, in seconds."""
        files = (*self._gt("gtidle/idle_residency_ms"), *self._cards("gt/gt0/rc6_residency_ms"))
        found = number(files)
        return found * _MILLI if isinstance(found, float) else found

    def _gt(self, name: str) -> list[Path]:
        """Return a file of xe's first graphics engine."""
        return [self._folder / "tile0/gt0" / name]

    def _cards(self, name: str) -> list[Path]:
        """Return a file of i915, which is at the card."""
        return [card / name for card in sorted(self._folder.glob("drm/card[0-9]*"))]

    def _sensors(self, folder: Path, now: float, found: Values) -> None:
        """Add temperatures, power and fan."""
        energy = number([folder / "energy1_input", folder / "energy2_input"])
        joules = energy * _MICRO if isinstance(energy, float) else energy
        found.set("power", self._energy.read(joules, now), _POWER_METHOD)
        found.set("energy", joules)
        found.add("power_limit", [folder / "power1_max", folder / "power2_max"], _MICRO)
        labels = {read_text(file): file.name for file in folder.glob("temp*_label")}
        for field, label in (("temp", "pkg"), ("temp_mem", "vram")):
            stem = labels.get(label, "temp1_label").removesuffix("_label")
            if label in labels or field == "temp":
                found.add(field, [folder / f"{stem}_input"], _MILLI)
        found.add("fan_rpm", [folder / "fan1_input"])
