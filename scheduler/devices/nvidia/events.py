"""Xid errors as the driver tells them: an NVML event set, asked without waiting."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pynvml as nv

from scheduler.devices.nvidia.errors import optional, text, why

_MOST = 64
"""Events taken at one reading; the others wait for the next."""
_FRESH_S = 10.0
"""An Xid that is older has nothing to do with a GPU that is lost now."""
MEANINGS = {
    13: "graphics engine exception (a program's error, such as an address out of bounds)",
    31: "memory page fault of a program",
    32: "corrupted command stream",
    43: "a program stopped working on the GPU",
    45: "a program's work was removed, after an earlier error or its end",
    48: "memory error that could not be put right",
    61: "micro-controller warning",
    62: "micro-controller halt",
    63: "a memory page or row is being replaced",
    64: "a memory page or row could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many memory errors that were put right",
    94: "memory error contained in the program that met it",
    95: "memory error that reached other programs",
    109: "a change of context took too long",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
}
"""Those that people meet, in our words; NVIDIA documents all of them."""


class XidEvents:
    """The Xids of all GPUs since this was opened."""

    def __init__(self, handles: dict[str, Any]) -> None:
        """`handles`: by UUID."""
        self._set = None
        self.absent: dict[str, str] = {}
        """Why a GPU tells no Xids, by its UUID."""
        self._last: dict[str, int] = {}
        self._count: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        try:
            self._set = nv.nvmlEventSetCreate()
        except nv.NVMLError as e:
            self.absent = dict.fromkeys(handles, why(e))
            return
        for uuid, handle in handles.items():
            try:
                nv.nvmlDeviceRegisterEvents(handle, nv.nvmlEventTypeXidCriticalError, self._set)
            except nv.NVMLError as e:
                self.absent[uuid] = why(e)

    def hear(self) -> None:
        """Take what has happened since the last call; waits for nothing."""
        if self._set is None:
            return
        for _ in range(_MOST):
            try:
                event = nv.nvmlEventSetWait(self._set, 0)
            except nv.NVMLError as e:
                if e.value != nv.NVML_ERROR_TIMEOUT:
                    why(e)
                return
            uuid = text(optional(nv.nvmlDeviceGetUUID, event.device) or "")
            self._last[uuid], self._heard[uuid] = int(event.eventData), monotonic()
            self._count[uuid] = self._count.get(uuid, 0) + 1

    def read(
        self, uuid: str, values: dict[str, float], absent: dict[str, str], texts: dict[str, str]
    ) -> None:
        if uuid in self.absent:
            absent.update(dict.fromkeys(("xid", "xid_count"), self.absent[uuid]))
            return
        values["xid"], values["xid_count"] = (
            float(self._last.get(uuid, 0)),
            float(self._count.get(uuid, 0)),
        )
        if number := self._last.get(uuid):
            texts["xid"] = words(number)

    def told(self) -> str:
        """What the driver said just now, in one line; empty where it said nothing."""
        return ", ".join(
            words(self._last[uuid])
            for uuid, heard in self._heard.items()
            if monotonic() - heard < _FRESH_S
        )

    def close(self) -> None:
        if self._set is not None:
            nv.nvmlEventSetFree(self._set)
            self._set = None


def words(number: int) -> str:
    """What an Xid means."""
    meaning = MEANINGS.get(number)
    return f"Xid {number}: {meaning}" if meaning else f"Xid {number}"
