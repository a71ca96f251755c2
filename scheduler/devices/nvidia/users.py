"""The processes that use one GPU: those that compute, with every reading; all of them and their share of it, when somebody asks."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pynvml as nv

from scheduler.devices.nvidia.errors import optional, why
from scheduler.devices.processes import Known
from scheduler.protocol.devices import Process

_WINDOW_S = 2.0
"""The share of a process is its mean over this span; older samples of the driver are stale."""


class Users:
    """Who is on one GPU."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._known = Known()

    def now(self) -> tuple[tuple[Process, ...], tuple[str, ...]]:
        """Those that compute, and the names of those that draw; empty where NVML does not tell."""
        compute, drawing = (
            {p.pid: _bytes(p) for p in optional(ask, self._handle) or ()}
            for ask in (
                nv.nvmlDeviceGetComputeRunningProcesses,
                nv.nvmlDeviceGetGraphicsRunningProcesses,
            )
        )
        found = self._known.describe(drawing | compute)
        return tuple(p for p in found if p.pid in compute), tuple(
            p.name for p in found if p.pid in drawing
        )

    def all(self) -> tuple[Process, ...]:
        """Those that compute and those that draw, with command, container and share of the multiprocessors."""
        compute = {
            p.pid: p for p in optional(nv.nvmlDeviceGetComputeRunningProcesses, self._handle) or ()
        }
        drawing = {
            p.pid: p for p in optional(nv.nvmlDeviceGetGraphicsRunningProcesses, self._handle) or ()
        }
        shares = self._shares()
        found = self._known.describe(
            {pid: _bytes(p) for pid, p in (drawing | compute).items()}, full=True
        )
        return tuple(
            msgspec.structs.replace(
                process,
                kind="graphics"
                if process.pid not in compute
                else "both"
                if process.pid in drawing
                else "compute",
                sm=None if shares is None else shares.get(process.pid, 0.0),
                instance=_instance(compute.get(process.pid) or drawing[process.pid]),
            )
            for process in found
        )

    def _shares(self) -> dict[int, float] | None:
        """Percent of the multiprocessors by pid, None where NVML does not tell."""
        since = int((time.time() - _WINDOW_S) * 1e6)
        try:
            samples = nv.nvmlDeviceGetProcessUtilization(self._handle, since)
        except nv.NVMLError as e:
            if e.value == nv.NVML_ERROR_NOT_FOUND:  # as it says where nobody did anything
                return {}
            why(e)
            return None
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            if (
                sample.timeStamp > since and sample.smUtil <= 100
            ):  # old and torn samples stay in the driver's buffer
                by_pid.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: sum(found) / len(found) for pid, found in by_pid.items()}


def _bytes(process: Any) -> float | None:
    return None if process.usedGpuMemory is None else float(process.usedGpuMemory)


def _instance(process: Any) -> int | None:
    """The GPU instance of MIG that a process is on."""
    found = getattr(process, "gpuInstanceId", None)
    return None if found is None or found == 2**32 - 1 else int(found)
