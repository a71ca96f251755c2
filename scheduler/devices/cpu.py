"""Read the machine's CPU as a device, for machines without an NVIDIA GPU."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import psutil

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.devices import machine
from gpudeck.scheduler.devices.process_load import LoadMeter, all_pids
from gpudeck.scheduler.devices.processes import ProcessTable
from gpudeck.scheduler.protocol.absence import Absence, Unavailable, Unreadable
from gpudeck.scheduler.protocol.devices import Detail, Device, Process, Reading, Source

_RAPL = Path("/sys/class/powercap")
_TEMP_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


MOST = 400
"""The most processes that are listed: those with the highest load, then with most memory."""


class CpuProcesses:
    """List who uses the CPU."""

    def __init__(self) -> None:
        self._table, self._meter = ProcessTable(), LoadMeter()

    def detailed(self) -> tuple[Process, ...]:
        """Return the processes with command, container, load and resident memory.

        Threads of the kernel and processes that have ended occupy no memory and are left out.
        """
        loads = {pid: load for pid, load in self._meter.read(all_pids()).items() if load.resident}
        chosen = sorted(
            loads, key=lambda pid: (loads[pid].share or 0.0, loads[pid].resident), reverse=True
        )[:MOST]
        return tuple(
            msgspec.structs.replace(process, kind="cpu", cpu=loads[process.pid].share)
            for process in self._table.describe(
                {pid: loads[pid].resident for pid in chosen}, full=True
            )
        )


class CpuSource(Source):
    """Read the CPU by the kernel's own counters (psutil, hwmon, RAPL).

    They cover the whole interval, so there is nothing to sample. The CPU is not leased.
    """

    def __init__(self, why: Message) -> None:
        """Start the counters.

        Args:
            why: The reason, for the user, why no GPU is watched.
        """
        self._why = why
        self._energy: tuple[float, float] | None = None
        self._io, self._detail_io = machine.IoMeter(), machine.IoMeter()
        self._processes = CpuProcesses()
        psutil.cpu_percent(None)  # the first call starts the interval

    def devices(self) -> list[Device]:
        """Return the CPU as the only device."""
        facts = {
            "cores": str(psutil.cpu_count(logical=False) or "?"),
            "threads": str(psutil.cpu_count() or 1),
            "why": self._why,
        }
        return [Device("cpu", 0, cpu_name(), "cpu", phrase("CPU: no NVIDIA GPU found"), facts)]

    def read(self, now: float) -> list[Reading]:
        """Return one reading of the CPU and of the machine around it."""
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
        absent: dict[str, Absence] = {"tflops": Unavailable("job counts")}
        for field, found in (
            ("temp", _temperature()),
            ("power", self._power(now)),
            ("clock_cpu", _clock()),
        ):
            if isinstance(found, float):
                values[field] = found
            else:
                absent[field] = found
        machine.add_totals(self._io.read(now), values, absent)
        return [Reading("cpu", now, values, absent)]

    def details(self, now: float) -> list[Detail]:
        """Return each core, disk, network and sensor, and the processes of the machine."""
        io = self._detail_io.read(now)
        disks, networks = ([], []) if isinstance(io, Unavailable) else io
        parts = (*machine.cores(), *disks, *networks, *machine.sensors())
        return [Detail("cpu", now, parts, cpu_processes=self._processes.detailed())]

    def _power(self, now: float) -> float | Absence:
        """Return the watts of all packages since the last reading, or why they are not known."""
        try:
            # a zone called psys covers the packages too, and a package includes the zones below it
            packages = [
                z.parent
                for z in _RAPL.glob("intel-rapl:[0-9]*/name")
                if z.read_text().startswith("package")
            ]
            if not packages:
                return Unavailable("RAPL")
            joules = sum(int((z / "energy_uj").read_text()) for z in packages) / 1e6
        except PermissionError:
            return Unavailable("RAPL permission")
        except (OSError, ValueError) as e:
            return Unreadable("the RAPL energy counter", str(e))
        before, self._energy = self._energy, (now, joules)
        if before is None or joules < before[1] or now <= before[0]:
            return Unavailable("first reading")  # or the counter wrapped
        return (joules - before[1]) / (now - before[0])


def cpu_name() -> str:
    """Return the processor's name as the kernel reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")) and ":" in line:
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # without /proc only the generic name below is known
    return os.uname().machine


def _temperature() -> float | Absence:
    chips = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    for chip in _TEMP_CHIPS:
        if found := [t.current for t in chips.get(chip, []) if t.current]:
            return float(max(found))
    return Unavailable("temperature sensor")


def _clock() -> float | Absence:
    found = psutil.cpu_freq()
    return float(found.current) if found and found.current else Unavailable("CPU clock")
