"""List the processes that use one GPU.

Those that compute are listed with every reading, and their shares now and then; all of them, with
their present shares, on request.
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
_FOLLOWED_S = 10.0
"""Seconds between two readings of the shares while nobody asks for them: a call of its own."""


class GpuProcesses:
    """List who uses one GPU."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._table, self._meter = ProcessTable(), LoadMeter()
        self._followed: dict[int, float] | None = None
        """The shares of the last span, by pid; None before the first, or if not reported."""
        self._follow_at = 0.0

    def follow(self, steady: float) -> None:
        """Read the shares of the last span if it is over.

        Args:
            steady: Seconds of a clock that is never set.
        """
        if steady >= self._follow_at:
            self._follow_at = steady + _FOLLOWED_S
            self._followed = self._shares(_FOLLOWED_S)

    def current(self) -> tuple[tuple[Process, ...], tuple[str, ...]]:
        """Return the processes that compute, and the names of those that draw.

        Both are empty where NVML does not list them.
        """
        compute, drawing = self._running()
        found = self._table.describe(_memory(drawing | compute))
        shares = self._followed
        return (
            tuple(
                p if shares is None else msgspec.structs.replace(p, sm=shares.get(p.pid, 0.0))
                for p in found
                if p.pid in compute
            ),
            tuple(p.name for p in found if p.pid in drawing),
        )

    def detailed(self) -> tuple[Process, ...]:
        """Return all processes, with command, container, and shares of multiprocessors and CPU."""
        compute, drawing = self._running()
        shares, loads = self._shares(_WINDOW_S), self._meter.read(drawing | compute)
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

    def _shares(self, seconds: float) -> dict[int, float] | None:
        """Return percent of the multiprocessors by pid, or None where NVML does not report it."""
        since = int((time.time() - seconds) * 1e6)
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
