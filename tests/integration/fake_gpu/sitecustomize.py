"""Found through PYTHONPATH by the probe and the assistant under test, before any of their own
modules: a GPU at the hardware's edge.

NVML answers as an H100 did (see `recorded_nvml`), but for who is on it: a process has the memory
that the file `$FAKE_GPU/PID` names in bytes, from the moment the file is there until the process
has ended. Who only draws stands in `drawing`. Where `mixed` is there, the first of two cards is one
without counters, on which nobody is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace as Answer
from typing import Any

FOLDER = Path(os.environ.get("FAKE_GPU", ""))
TOTAL, RESERVED = 80 * 2**30, 2**29


def install() -> None:
    """Stand in place of the driver."""
    from tests.support import lives
    from tests.unit.scheduler.recorded_nvml import RecordedNvml

    def on_it() -> dict[int, int]:
        found = {}
        for file in FOLDER.iterdir():
            if not file.name.isdigit() or is_suspended(file):
                continue
            if (text := file.read_text()) and lives(int(file.name)):
                found[int(file.name)] = int(text)
        return found

    def is_suspended(file: Path) -> bool:
        state = file.with_suffix(".state")  # of the stand-in of the driver (see `stub_cuda`)
        return state.exists() and state.read_text().strip() == "2"

    def drawing() -> list[int]:
        file = FOLDER / "drawing"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def memory(*_: object) -> Answer:
        with suppress(FileNotFoundError):
            (FOLDER / "hang").unlink()
            time.sleep(1000)  # until the probe is replaced
        used = sum(on_it().values())
        return Answer(used=used, total=TOTAL, free=TOTAL - RESERVED - used, reserved=RESERVED)

    mixed = (FOLDER / "mixed").exists()
    recorded = RecordedNvml(1 + mixed)
    recorded.answers |= {
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUtilizationRates": Answer(gpu=0, memory=0),
        "nvmlDeviceGetComputeRunningProcesses": lambda card: [
            Answer(pid=pid, usedGpuMemory=size) for pid, size in on_it().items() if card == mixed
        ],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [
            Answer(pid=pid, usedGpuMemory=None) for pid in drawing()
        ],
    }
    if mixed:
        recorded.answers |= {
            "nvmlDeviceGetName": lambda card: "NVIDIA H100" if card else "NVIDIA GeForce RTX 2080",
            "nvmlGpmQueryDeviceSupport": lambda card: Answer(isSupportedDevice=card),
        }
    recorded.install()


def install_engine() -> None:
    """What was meant for CUDA runs on the CPU, slowly, while the process counts as one that is
    on the GPU."""
    from gpudeck.assistant.engine import engine
    from gpudeck.assistant.library import describe

    describe.ABLE = 0  # a tiny model stands for a large one, which writes texts

    class Engine(engine.Engine):
        def __init__(self, path: str, device: str) -> None:
            super().__init__(path, "cpu")
            self.device = device
            if device == "cuda":
                (FOLDER / "new").write_text(str(2**30))
                (FOLDER / "new").rename(FOLDER / str(os.getpid()))
                self.network.step = _slowly(self.network.step)  # type: ignore[method-assign]

    engine.Engine = Engine  # type: ignore[misc]


def install_serving() -> None:
    """Serve on the CPU, slowly, what was meant for CUDA, while the process counts as one on it."""
    from gpudeck.accel.serving.engine import Engine

    real = Engine.load

    def load(folder: Path, device: str, *args: Any, **options: Any) -> Engine:
        if device != "cuda":
            return real(folder, device, *args, **options)
        (FOLDER / "new").write_text(str(2**30))
        (FOLDER / "new").rename(FOLDER / str(os.getpid()))
        engine = real(folder, "cpu", *args, **options)
        engine.step = _slowly(engine.step)  # type: ignore[method-assign]
        return engine

    Engine.load = load  # type: ignore[method-assign,assignment]


def install_survey() -> None:
    """Let the job that measures clocks find no GPU, once the file `surveyed` is there; until then
    it counts as one on the GPU."""

    def count() -> int:
        (FOLDER / "new").write_text(str(2**30))
        (FOLDER / "new").rename(FOLDER / str(os.getpid()))
        while not (FOLDER / "surveyed").exists():
            time.sleep(0.02)
        return 0

    cuda = Answer(is_available=lambda: True, device_count=count)
    sys.modules["torch"] = Answer(cuda=cuda)  # type: ignore[assignment]


def _slowly(step: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any) -> Any:
        time.sleep(0.01)
        return step(*args)

    return slow


if "gpudeck.scheduler.devices.probe" in sys.orig_argv and FOLDER.name:
    install()
if "gpudeck.assistant.host" in sys.orig_argv and FOLDER.name:
    install_engine()
if "gpudeck.assistant.inference" in sys.orig_argv and FOLDER.name:
    install_serving()
if "gpudeck.accel.workloads.clock_survey" in sys.orig_argv and FOLDER.name:
    install_survey()
