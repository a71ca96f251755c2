"""List the processes that use one GPU.

Those that compute are listed with every reading; all of them, and their share, on request.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pynvml as nv

from gpudeck.scheduler.devices.nvidia.errors import optional, refusal
from gpudeck.scheduler.devices.process_load import LoadMeter
from gpudeck.scheduler.devices.processes import ProcessTable
from gpudeck.scheduler.protocol.devices import Process

_WINDOW_S = 2.0
"""The share of a process is its mean over this span; older samples of the driver are stale."""


class GpuProcesses:
    """List who uses one GPU."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._table, self._meter = ProcessTable(), LoadMeter()

    def current(self) -> tuple[tuple[Process, ...], tuple[str, ...]]:
        """Return the processes that compute, and the names of those that draw.

        Both are empty where NVML does not list them.
        """
        compute, drawing = self._running()
        found = self._table.describe(_memory(drawing | compute))
        return (
            tuple(p for p in found if p.pid in compute),
            tuple(p.name for p in found if p.pid in drawing),
        )

    def detailed(self) -> tuple[Process, ...]:
        """Return all processes, with command, container, and shares of multiprocessors and CPU."""
        compute, drawing = self._running()
        shares, loads = self._shares(), self._meter.read(drawing | compute)
        return tuple(
            msgspec.structs.replace(
                process,
                kind="graphics"
                if process.pid not in compute
                else "both"
                if process.pid in drawing
                else "compute",
                sm=None if shares is None else shares.get(process.pid, 0.0),
                cpu=loads[process.pid].share if process.pid in loads else None,
                instance=_instance(compute.get(process.pid) or drawing[process.pid]),
            )
            for process in self._table.describe(_memory(drawing | compute), full=True)
        )

    def _running(self) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return what NVML lists by pid: the processes that compute, and those that draw."""
        compute, drawing = (
            {p.pid: p for p in optional(call, self._handle) or ()}
            for call in (
                nv.nvmlDeviceGetComputeRunningProcesses,
                nv.nvmlDeviceGetGraphicsRunningProcesses,
            )
        )
        return compute, drawing

    def _shares(self) -> dict[int, float] | None:
        """Return percent of the multiprocessors by pid, or None where NVML does not report it."""
        since = int((time.time() - _WINDOW_S) * 1e6)
        try:
            samples = nv.nvmlDeviceGetProcessUtilization(self._handle, since)
        except nv.NVMLError as e:
            if e.value == nv.NVML_ERROR_NOT_FOUND:  # NVML's answer where nothing ran
                return {}
            refusal(e)
            return None
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            # old and torn samples stay in the driver's buffer
            if sample.timeStamp > since and sample.smUtil <= 100:
                by_pid.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: sum(found) / len(found) for pid, found in by_pid.items()}


def _memory(processes: dict[int, Any]) -> dict[int, float | None]:
    """Return the bytes of each process by pid."""
    return {
        pid: None if process.usedGpuMemory is None else float(process.usedGpuMemory)
        for pid, process in processes.items()
    }


def _instance(process: Any) -> int | None:
    """Return the GPU instance of MIG that a process is on."""
    found = getattr(process, "gpuInstanceId", None)
    return None if found is None or found == 2**32 - 1 else int(found)
