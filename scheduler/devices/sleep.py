"""Whether the driver switches a GPU off that nobody holds open, as on laptops. Read from the kernel: NVML itself would wake the GPU."""

from __future__ import annotations

from pathlib import Path

_GPUS = Path("/proc/driver/nvidia/gpus")


def can_sleep() -> bool:
    """Whether runtime power management (D3) is enabled for any NVIDIA GPU here."""
    return any(_enabled(file) for file in _GPUS.glob("*/power"))


def _enabled(file: Path) -> bool:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return False  # the GPU was just unplugged, or the driver tells nobody
    return any(line.startswith("Runtime D3 status:") and "Enabled" in line for line in lines)
