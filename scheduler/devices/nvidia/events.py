"""Collect Xid errors from the driver: an NVML event set, polled without waiting."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pynvml as nv

from gpudeck.scheduler.devices.nvidia.errors import optional, refusal, text
from gpudeck.scheduler.protocol.absence import Absence

_MOST = 64
"""The most events taken in one reading; the others wait for the next."""
_FRESH_S = 10.0
"""How recent an Xid must be to explain why a GPU has just been lost."""
MEANINGS = {
    13: "graphics engine exception (a program's error, such as an address out of bounds)",
    31: "memory page fault of a program",
    32: "corrupted command stream",
    43: "a program stopped working on the GPU",
    45: "a program's work was removed, after an earlier error or its end",
    48: "memory error that could not be corrected",
    61: "micro-controller warning",
    62: "micro-controller halt",
    63: "a memory page or row is being replaced",
    64: "a memory page or row could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "memory error contained in the program that met it",
    95: "memory error that reached other programs",
    109: "a context switch took too long",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
}
"""The most common Xids; NVIDIA documents all of them."""
FAULTS = frozenset({46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158})
"""Xids after which a GPU must be reset, or the machine restarted, before it is used again.

Source: NVIDIA, Analyzing Xid Errors with the Xid Catalog (Ampere and newer): the immediate action
is RESET_GPU or RESTART_BM, or the description says that a reset is needed to clear the error (48
and 74). Xid 155 is left out, as links that are switched off on purpose raise it, too.
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""


class XidEvents:
    """Count the Xids of all GPUs since this object was created."""

    def __init__(self, handles: dict[str, Any]) -> None:
        """Register every GPU for events.

        Args:
            handles: NVML handles by UUID.
        """
        self._set = None
        self._absent: dict[str, Absence] = {}
        self._last: dict[str, int] = {}
        self._count: dict[str, int] = {}
        self._faults: dict[str, list[int]] = {}
        """The Xids in FAULTS of each GPU."""
        self._received: dict[str, float] = {}
        try:
            self._set = nv.nvmlEventSetCreate()
        except nv.NVMLError as e:
            self._absent = dict.fromkeys(handles, refusal(e))
            return
        for uuid, handle in handles.items():
            try:
                nv.nvmlDeviceRegisterEvents(handle, nv.nvmlEventTypeXidCriticalError, self._set)
            except nv.NVMLError as e:
                self._absent[uuid] = refusal(e)

    def collect(self) -> None:
        """Take the events since the last call, without waiting."""
        if self._set is None:
            return
        for _ in range(_MOST):
            try:
                event = nv.nvmlEventSetWait(self._set, 0)
            except nv.NVMLError as e:
                if e.value != nv.NVML_ERROR_TIMEOUT:
                    refusal(e)
                return
            uuid = text(optional(nv.nvmlDeviceGetUUID, event.device) or "")
            self._last[uuid], self._received[uuid] = int(event.eventData), monotonic()
            self._count[uuid] = self._count.get(uuid, 0) + 1
            if self._last[uuid] in FAULTS:
                self._faults.setdefault(uuid, []).append(self._last[uuid])

    def read(
        self,
        uuid: str,
        values: dict[str, float],
        absent: dict[str, Absence],
        texts: dict[str, str],
    ) -> None:
        """Add the last Xid of a GPU, its meaning and the number of Xids."""
        if uuid in self._absent:
            absent.update(dict.fromkeys(("xid", "xid_count"), self._absent[uuid]))
            return
        values["xid"] = float(self._last.get(uuid, 0))
        values["xid_count"] = float(self._count.get(uuid, 0))
        if number := self._last.get(uuid):
            texts["xid"] = describe_xid(number)
        if faults := self._faults.get(uuid):
            times = f" ({len(faults)} such events)" if len(faults) > 1 else ""
            texts["xid_fault"] = describe_xid(faults[-1]) + times

    def recent(self) -> str:
        """Return the Xids of the last seconds in one line, or an empty text if there were none."""
        return ", ".join(
            describe_xid(self._last[uuid])
            for uuid, received in self._received.items()
            if monotonic() - received < _FRESH_S
        )

    def close(self) -> None:
        """Free the event set."""
        if self._set is not None:
            nv.nvmlEventSetFree(self._set)
            self._set = None


def describe_xid(number: int) -> str:
    """Return an Xid with its meaning, if that is known."""
    meaning = MEANINGS.get(number)
    return f"Xid {number}: {meaning}" if meaning else f"Xid {number}"
