"""List the processes of the machine by the load that they put on the CPU."""

from __future__ import annotations

import msgspec

from gpudeck.scheduler.devices.process_load import LoadMeter, all_pids
from gpudeck.scheduler.devices.processes import ProcessTable
from gpudeck.scheduler.protocol.devices import Process

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
