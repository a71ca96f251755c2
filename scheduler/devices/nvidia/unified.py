"""Memory that a GPU shares with the CPU (GB10 and its kin), of which NVML reports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psutil
import pynvml as nv

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.absence import Absence, Refused

METHOD = phrase(
    "memory that the GPU shares with the CPU: from /proc/meminfo, as NVML does not support it"
)
_FIELDS = ("mem_used", "mem_total", "mem_free")
_NOT_SUPPORTED = Refused("NVML", str(nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)))


def is_unified(absent: Mapping[str, Absence]) -> bool:
    """Return True where NVML says that it does not support the memory of a GPU."""
    return absent.get("mem_total") == _NOT_SUPPORTED


def add_memory(
    values: dict[str, float], absent: dict[str, Absence], methods: dict[str, Message]
) -> None:
    """Add the machine's memory to a reading, in place of what NVML does not report."""
    values.update(machine_memory())
    for field in _FIELDS:
        absent.pop(field, None)
        methods[field] = METHOD


def machine_memory() -> dict[str, float]:
    """Return the memory of the machine in bytes; what can be reclaimed counts as free."""
    found = psutil.virtual_memory()
    free, total = float(found.available), float(found.total)
    return {"mem_used": total - free, "mem_total": total, "mem_free": free}


def has_own_memory(handle: Any) -> bool:
    """Return False where NVML says that it does not support the memory of this GPU."""
    try:
        nv.nvmlDeviceGetMemoryInfo(handle, nv.nvmlMemory_v2)
    except nv.NVMLError as e:
        return bool(e.value != nv.NVML_ERROR_NOT_SUPPORTED)
    return True
