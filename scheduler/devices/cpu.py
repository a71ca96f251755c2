"""The machine's CPU as a device: what a machine without an NVIDIA GPU runs its attention on."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from scheduler.devices import machine
from scheduler.protocol.devices import Detail, Device, Reading

_RAPL = Path("/sys/class/powercap")
_TEMP_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")
_NO_COUNTERS = "known only while a job counts its own"


class CpuSource:
    """Readings of the CPU from the kernel's own counters (psutil, hwmon, RAPL)."""

    def __init__(self, why: str) -> None:
        """`why`: why no GPU is watched, for the user to read."""
        self._why = why
        self._energy: tuple[float, float] | None = None
        self._flows, self._shown_flows = machine.Flows(), machine.Flows()
        psutil.cpu_percent(None)  # the first call starts the interval

    def devices(self) -> list[Device]:
        facts = {
            "cores": str(psutil.cpu_count(logical=False) or "?"),
            "threads": str(psutil.cpu_count() or 1),
            "why": self._why,
        }
        return [Device("cpu", 0, cpu_name(), "cpu", "CPU: no NVIDIA GPU found", facts)]

    def tick(self) -> None:
        """Nothing to average: the kernel's counters cover the whole interval."""

    def glance(self, now: float) -> list[Reading]:
        """Nothing: it is not leased, and who computes on it is not listed."""
        return []

    def read(self, now: float) -> list[Reading]:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        values = {
            "util": psutil.cpu_percent(None),
            "mem_used": float(memory.total - memory.available),
            "mem_total": float(memory.total),
            "mem_free": float(memory.available),
            "swap_used": float(swap.used),
            "swap_total": float(swap.total),
            "load": os.getloadavg()[0],
            "cores": float(psutil.cpu_count() or 1),
        }
        absent = {"tflops": _NO_COUNTERS}
        for field, found in (
            ("temp", _temperature()),
            ("power", self._power(now)),
            ("clock_cpu", _clock()),
        ):
            if isinstance(found, str):
                absent[field] = found
            else:
                values[field] = found
        machine.totals(self._flows.read(now), values, absent)
        return [Reading("cpu", now, values, absent)]

    def details(self, now: float) -> list[Detail]:
        """Each core, disk, network and sensor."""
        flows = self._shown_flows.read(now)
        disks, networks = ([], []) if isinstance(flows, str) else flows
        return [Detail("cpu", now, (*machine.cores(), *disks, *networks, *machine.sensors()))]

    def close(self) -> None:
        pass

    def _power(self, now: float) -> float | str:
        """Watts of all packages since the last reading, or why there are none."""
        try:
            # a zone called psys covers the packages too, and those below a package are in its sum
            packages = [
                z.parent
                for z in _RAPL.glob("intel-rapl:[0-9]*/name")
                if z.read_text().startswith("package")
            ]
            if not packages:
                return "this kernel exposes no RAPL energy counter (/sys/class/powercap)"
            joules = sum(int((z / "energy_uj").read_text()) for z in packages) / 1e6
        except PermissionError:
            return "only root may read the RAPL energy counter (/sys/class/powercap)"
        except (OSError, ValueError) as e:
            return f"the RAPL energy counter cannot be read: {e}"
        before, self._energy = self._energy, (now, joules)
        if (
            before is None or joules < before[1] or now <= before[0]
        ):  # the first reading, or the counter wrapped
            return "not known before the second reading"
        return (joules - before[1]) / (now - before[0])


def cpu_name() -> str:
    """The processor's name as the kernel tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")) and ":" in line:
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # no /proc: the generic name below is all that can be said
    return os.uname().machine


def _temperature() -> float | str:
    chips = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    for chip in _TEMP_CHIPS:
        if found := [t.current for t in chips.get(chip, []) if t.current]:
            return float(max(found))
    return "this kernel exposes no CPU temperature sensor (hwmon)"


def _clock() -> float | str:
    found = psutil.cpu_freq()
    return (
        float(found.current)
        if found and found.current
        else "this kernel does not expose the CPU clock"
    )
