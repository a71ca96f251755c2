"""AMD GPUs by the files of amdgpu.

Source: the kernel's Documentation/gpu/amdgpu/thermal.rst and amdgpu/driver-misc.rst.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gpudeck.scheduler.devices.drm.files import Values
from gpudeck.scheduler.devices.runtime_power import read_text

_MICRO, _MILLI, _MEGA = 1e-6, 1e-3, 1e6


class AmdCard:
    """Read one card. Each file is read anew, as none is costly."""

    kind: Literal["amd"] = "amd"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def identity(self) -> str:
        """Return the card's unique number; empty where it has none."""
        return read_text(self._folder / "unique_id")

    @property
    def name(self) -> str:
        """Return the card's name, as far as the driver knows it."""
        return (
            read_text(self._folder / "product_name")
            or f"AMD GPU {read_text(self._folder / 'device')}"
        )

    def read(self, now: float) -> Values:
        """Return everything that the driver reports."""
        found, folder = Values(), self._folder
        found.add("util", [folder / "gpu_busy_percent"])
        found.add("mem_util", [folder / "mem_busy_percent"])
        found.add("mem_total", [folder / "mem_info_vram_total"])
        found.add("mem_used", [folder / "mem_info_vram_used"])
        if "mem_total" in found.values and "mem_used" in found.values:
            found.set("mem_free", found.values["mem_total"] - found.values["mem_used"])
        for sensors in sorted(folder.glob("hwmon/hwmon*"))[:1]:
            self._sensors(sensors, found)
        return found

    def _sensors(self, folder: Path, found: Values) -> None:
        """Add temperatures, power, fan and clocks."""
        labels = {read_text(file): file for file in folder.glob("temp*_label")}
        for field, label in (("temp", "edge"), ("temp_mem", "mem")):
            named = labels.get(label, folder / "temp1_label" if label == "edge" else None)
            if named is not None:
                stem = named.name.removesuffix("_label")
                found.add(field, [folder / f"{stem}_input"], _MILLI)
                if label == "edge":
                    found.add("temp_shutdown", [folder / f"{stem}_emergency"], _MILLI)
                    found.add("temp_limit", [folder / f"{stem}_crit"], _MILLI)
        found.add("power", [folder / "power1_input", folder / "power1_average"], _MICRO)
        found.add("power_limit", [folder / "power1_cap"], _MICRO)
        found.add("power_limit_min", [folder / "power1_cap_min"], _MICRO)
        found.add("power_limit_max", [folder / "power1_cap_max"], _MICRO)
        found.add("power_limit_default", [folder / "power1_cap_default"], _MICRO)
        found.add("fan_rpm", [folder / "fan1_input"])
        found.add("clock_sm", [folder / "freq1_input"], 1 / _MEGA)
        found.add("clock_mem", [folder / "freq2_input"], 1 / _MEGA)
