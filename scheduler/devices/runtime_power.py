"""Which GPUs sleep, by the kernel's runtime power management. Reading it wakes none.

Source: the kernel's Documentation/ABI/testing/sysfs-devices-power.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PCI = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
_DISPLAY = ("0x0300", "0x0302", "0x0380")
"""The PCI classes of VGA, 3D and other display controllers."""


class PciGpu(NamedTuple):
    """Describe the power state of one GPU."""

    address: str
    """Such as 0000:01:00.0."""
    asleep: bool
    can_sleep: bool
    """The kernel suspends it once nobody has it open."""


def find_gpus(vendor: str = NVIDIA) -> tuple[PciGpu, ...]:
    """Return the GPUs of a vendor by address, which is NVML's order, too."""
    found = []
    for folder in sorted(PCI.glob("*")):
        if read_text(folder / "vendor") == vendor and read_text(folder / "class").startswith(
            _DISPLAY
        ):
            asleep = read_text(folder / "power/runtime_status") == "suspended"
            can_sleep = read_text(folder / "power/control") == "auto"
            found.append(PciGpu(folder.name, asleep, can_sleep))
    return tuple(found)


def read_text(file: Path) -> str:
    """Return what a file of sysfs says; an empty text where it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
