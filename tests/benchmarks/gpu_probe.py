"""Run the real probe, and loads of a known size on a GPU, for the benchmarks of the monitor."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

from gpudeck.scheduler.devices.probe import DECODE, Readings
from gpudeck.scheduler.protocol.devices import Reading

Call = Callable[[], object]


def need_gpu() -> int:
    """Return the number of NVIDIA GPUs, or exit with one line if there is none."""
    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as e:
        raise SystemExit(f"this measures an NVIDIA GPU, and none can be reached here: {e}") from e
    if not count:
        raise SystemExit("this measures an NVIDIA GPU, and the driver finds none")
    return count


def torch_on_gpu() -> Any:
    """Import torch, or exit with one line if it cannot use the GPU."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(
            "this needs a torch that can use the GPU: torch.cuda.is_available() says no"
        )
    return torch


class Probe:
    """Run the real probe in a process of its own, and keep the readings of the first GPU."""

    def __init__(self, hz: float = 2.0) -> None:
        self.readings: list[Reading] = []
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpudeck.scheduler.devices.probe", "nvml", str(hz)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if isinstance(message := DECODE(line), Readings):
                self.readings.append(message.readings[0])

    def between(self, start: float, end: float) -> list[Reading]:
        """Return the readings whose interval lies between two times (seconds since the epoch)."""
        inside = [r for r in self.readings if start < r.time < end]
        return inside[1:]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


class Ran(NamedTuple):
    calls: int
    start: float
    end: float
    spans: list[tuple[float, float]]
    """The times at which the GPU had work, in seconds since the epoch."""


def loop(call: Call, seconds: float, duty: float = 1.0, period: float = 0.1) -> Ran:
    """Run `call` repeatedly on the GPU, busy for the share `duty` of each `period` (s)."""
    torch = torch_on_gpu()
    call()
    torch.cuda.synchronize()
    start, calls, ahead = time.time(), 0, deque[Any]()
    began, spans = start, list[tuple[float, float]]()
    while (now := time.time()) - start < seconds:
        if (now - start) % period > duty * period:
            torch.cuda.synchronize()
            ahead.clear()
            spans.append((began, time.time()))
            time.sleep(max(period - (time.time() - start) % period, 0.0))
            began = time.time()
            continue
        call()
        calls += 1
        event = torch.cuda.Event()
        event.record()
        ahead.append(event)
        if len(ahead) > (8 if duty == 1.0 else 1):  # no work may be left to run in a pause
            ahead.popleft().synchronize()
    torch.cuda.synchronize()
    end = time.time()
    return Ran(calls, start, end, [*spans, (began, end)])
