"""Record what NVML answers on this machine, for the tests of `gpudeck.scheduler.devices.nvidia`.

    python -m tests.gpu.record_nvml FILE

Every call that the source makes, for readings, occupancy and details, is written with its
arguments and its answer or error, and so are the calls that it makes on older cards only. GPM is
left out: its samples are opaque. Give the GPU some work meanwhile.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pynvml

from gpudeck.scheduler.devices.nvidia.source import NvmlSource

_SKIPPED = ("nvmlErrorString", "nvmlStructToFriendlyObject", "nvmlEventSetWait")
_ANY = ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetMemoryInfo")
"""Calls whose arguments, a time or the version of a struct, do not choose among the answers."""
_OLDER: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("nvmlDeviceGetNumGpuCores", ()),
    ("nvmlDeviceGetPcieThroughput", (pynvml.NVML_PCIE_UTIL_RX_BYTES,)),
    ("nvmlDeviceGetPcieThroughput", (pynvml.NVML_PCIE_UTIL_TX_BYTES,)),
    ("nvmlDeviceGetMaxMigDeviceCount", ()),
    ("nvmlDeviceGetClock", (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT)),
    *(("nvmlDeviceGetClockInfo", (kind,)) for kind in range(4)),
    *(("nvmlDeviceGetMaxClockInfo", (kind,)) for kind in range(4)),
    *(("nvmlDeviceGetTemperatureThreshold", (kind,)) for kind in range(8)),
    *(("nvmlDeviceGetRetiredPages", (cause,)) for cause in range(2)),
    *(("nvmlDeviceGetTotalEccErrors", (error, span)) for error in range(2) for span in range(2)),
)


class Recorder:
    """Stand around every function of pynvml, and keep the last answer to each set of arguments."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self._depth = 0
        """Above 0 within a call: pynvml's functions call each other."""

    def install(self) -> None:
        """Replace the functions of pynvml."""
        for name, found in vars(pynvml).copy().items():
            if (
                name.startswith("nvml")
                and isinstance(found, FunctionType)
                and name not in _SKIPPED
                and "Gpm" not in name
            ):
                setattr(pynvml, name, self._recorded(name, found))

    def _recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._depth += 1
            try:
                answer = function(*arguments)
            except pynvml.NVMLError as e:
                self._depth -= 1
                self._keep(name, arguments, {"error": e.value})
                raise
            self._depth -= 1
            if name == "nvmlDeviceGetFieldValues":
                for asked, value in zip(arguments[1], answer, strict=True):
                    self.answers.setdefault(name, {})[json.dumps(plain(asked))] = field(value)
            else:
                self._keep(name, arguments, plain(answer))
            return answer

        return call

    def _keep(self, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        if self._depth:
            return
        told = () if name in _ANY else arguments
        key = json.dumps([plain(a) for a in told if not isinstance(a, ctypes._Pointer)])
        self.answers.setdefault(name, {})[key] = answer


def field(value: Any) -> Any:
    """Return one answer of nvmlDeviceGetFieldValues: type and number, or the error."""
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return {"error": value.nvmlReturn}
    names = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal"}
    name = names.get(value.valueType, "uiVal")
    return {"type": value.valueType, "value": getattr(value.value, name)}


def plain(value: Any) -> Any:
    """Return the value as what JSON can hold."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array):
        return [plain(v) for v in value]
    if value is None or isinstance(value, int | float | str | bool):
        return value
    if hasattr(value, "__dict__"):
        return {name: plain(v) for name, v in vars(value).items()}
    return str(type(value).__name__)


def main() -> int:
    """Record, write the file and return the exit status."""
    recorder = Recorder()
    recorder.install()
    source = NvmlSource()
    for _ in range(4):
        time.sleep(0.3)
        source.read(time.time())
    source.occupancy(time.time())
    source.details(time.time())
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for name, arguments in _OLDER:
        try:
            getattr(pynvml, name)(handle, *arguments)
        except pynvml.NVMLError as e:
            print(f"{name}{arguments}: {e}")
    source.close()
    lines = [
        f" {json.dumps(name)}: {json.dumps(answers, sort_keys=True)}"
        for name, answers in sorted(recorder.answers.items())
    ]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
