"""Found through PYTHONPATH by the probe under test, before any of its own modules: a GPU at the hardware's edge, below our own code.

NVML answers as an H100 did (see `recorded_nvml`), but for who is on it: a process has the memory that the file `$FAKE_GPU/PID` names in
bytes, from the moment the file is there until the process has ended. Who only draws stands in `drawing`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace as Answer

FOLDER = Path(os.environ.get("FAKE_GPU", ""))
TOTAL, RESERVED = 80 * 2**30, 2**29


def install() -> None:
    """Stand in place of the driver."""
    from tests.support import lives
    from tests.unit.scheduler.recorded_nvml import RecordedNvml

    def on_it() -> dict[int, int]:
        found = {}
        for file in FOLDER.iterdir():
            if file.name.isdigit() and (text := file.read_text()) and lives(int(file.name)):
                found[int(file.name)] = int(text)
        return found

    def drawing() -> list[int]:
        file = FOLDER / "drawing"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def memory(*_: object) -> Answer:
        used = sum(on_it().values())
        return Answer(used=used, total=TOTAL, free=TOTAL - RESERVED - used, reserved=RESERVED)

    recorded = RecordedNvml()
    recorded.answers |= {
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUtilizationRates": Answer(gpu=0, memory=0),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [Answer(pid=pid, usedGpuMemory=size) for pid, size in on_it().items()],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [Answer(pid=pid, usedGpuMemory=None) for pid in drawing()],
    }
    recorded.install()


if "scheduler.devices.probe" in sys.orig_argv and FOLDER.name:
    install()
