"""Measure the true SM clock of GPUs beside loads at several levels of power, for `gpudeck
calibrate`:

    python -P -m gpudeck.accel.workloads.clock_survey

Each load runs for some seconds, while kernels of one warp count cycles
(`gpudeck.accel.runtime.sm_clock`). What was measured is written to clocks.json in the folder of the
job: the daemon compares it with what NVML reported of the same seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpudeck.accel.workloads.progress import Progress

FILE = "clocks.json"
SECONDS, PACED_SECONDS = 2.2, 3.2
"""A load with pauses takes longer: NVML's clock is low in one sample and high in the next."""
SAMPLE_S = 0.006
_MOST_SAMPLES = 2000
_N, _SMALL, _TOKENS, _WIDTH, _COPIED = 8192, 2048, 16384, 2048, 2**28
_PACES = (
    (0.15, 0.13),
    (0.3, 0.13),
    (0.6, 0.13),
    (0.6, 0.1),
    (0.6, 0.037),
    (0.3, 0.37),
    (0.5, 0.5),
)
"""The busy share of each period, and the period in seconds."""
LOADS = 15
_AHEAD = 4
"""Calls that wait on the GPU while it is to be busy without a pause."""


class SurveyLoad(NamedTuple):
    """Describe one load."""

    name: str
    call: Callable[[], object]
    flops: float
    """The operations of one call; 0 where they are not counted."""
    busy: float = 1.0
    """The share of each period in which it runs."""
    period: float = 0.13
    """Seconds."""


class MeasuredLoad(msgspec.Struct, frozen=True):
    """Hold what one load did and the clocks beside it. Times are seconds since the epoch."""

    name: str
    start: float
    end: float
    flops: float
    """The operations of the whole load; 0 where they were not counted."""
    busy: tuple[tuple[float, float], ...]
    """When the GPU had work: pairs of start and end."""
    clocks: tuple[tuple[float, float], ...]
    """Pairs of time and MHz."""


class MeasuredGpu(msgspec.Struct, frozen=True):
    """Hold all loads of one GPU."""

    device: str
    """Its UUID as NVML writes it."""
    loads: tuple[MeasuredLoad, ...]


def loads(device: Any) -> Iterator[SurveyLoad]:
    """Yield the loads of the survey: from rest to the power limit, without and with pauses."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    def product(n: int, dtype: torch.dtype, times: int = 1) -> tuple[Callable[[], object], float]:
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        c = torch.empty_like(a)

        def call() -> None:
            for _ in range(times):
                torch.matmul(a, b, out=c)

        return call, 2.0 * n**3 * times

    large = product(_N, torch.bfloat16)
    q, k, v = (
        torch.randn(1, _WIDTH // 128, _TOKENS, 128, device=device, dtype=torch.bfloat16)
        for _ in range(3)
    )
    words = torch.randn(_COPIED, device=device)
    copied = torch.empty_like(words)

    tf32_product, _ = product(_N, torch.float32)

    def tf32() -> None:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        tf32_product()
        torch.backends.cuda.matmul.allow_tf32 = before

    def attention() -> object:
        return scaled_dot_product_attention(q, k, v)

    yield SurveyLoad("copy", lambda: copied.copy_(words), 0.0)
    yield SurveyLoad("float32 product", *product(_N, torch.float32))
    yield SurveyLoad("bfloat16 product", *large)
    yield SurveyLoad("float16 product", *product(_N, torch.float16))
    yield SurveyLoad("bfloat16 product of 2048", *product(_SMALL, torch.bfloat16, 16))
    yield SurveyLoad("TF32 product", tf32, 0.0)
    yield SurveyLoad("attention", attention, 0.0)
    for busy, period in _PACES:
        name = f"bfloat16 product, busy {busy:.0%} of {period:g} s"
        yield SurveyLoad(name, *large, busy, period)
    yield SurveyLoad("attention, busy 45% of 0.13 s", attention, 0.0, 0.45)


def measure(load: SurveyLoad, device: Any) -> MeasuredLoad:
    """Run a load beside samples of the clock."""
    import torch

    from gpudeck.accel.runtime.sm_clock import ClockSampler

    load.call()
    sampler = ClockSampler(device, SAMPLE_S, _MOST_SAMPLES)
    sampler.start()
    start, calls = time.time(), 0
    began, spans = start, list[tuple[float, float]]()
    ahead: list[Any] = []
    seconds = SECONDS if load.busy == 1.0 else PACED_SECONDS
    while (now := time.time()) - start < seconds:
        if (now - start) % load.period > load.busy * load.period:
            torch.cuda.synchronize(device)
            ahead.clear()
            spans.append((began, time.time()))
            time.sleep(max(load.period - (time.time() - start) % load.period, 0.0))
            began = time.time()
            continue
        load.call()
        calls += 1
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        ahead.append(event)
        if len(ahead) > (_AHEAD if load.busy == 1.0 else 1):  # none may be left to run in a pause
            ahead.pop(0).synchronize()
    torch.cuda.synchronize(device)
    end = time.time()
    clocks = tuple((sample.time, sample.mhz) for sample in sampler.stop())
    busy = (*spans, (began, end))
    return MeasuredLoad(load.name, start, end, calls * load.flops, busy, clocks)


def _device(index: int) -> Any:
    import torch

    return torch.device("cuda", index)


def survey(progress: Progress) -> tuple[MeasuredGpu, ...]:
    """Measure all GPUs that this process may use, one after another."""
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        device = _device(index)
        with torch.cuda.device(device), torch.no_grad():
            measured: list[MeasuredLoad] = []
            for load in loads(device):
                progress.stage(load.name, begins=index + len(measured) / LOADS)
                measured.append(measure(load, device))
                clocks = [mhz for _, mhz in measured[-1].clocks]
                print(f"{load.name}: {sum(clocks) / max(len(clocks), 1):.0f} MHz", flush=True)
        torch.cuda.empty_cache()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        found.append(MeasuredGpu(uuid, tuple(measured)))
    return tuple(found)


def main() -> int:
    """Run the survey and return the exit status."""
    import torch

    if not torch.cuda.is_available():
        print("a calibration needs an NVIDIA GPU that torch can use", file=sys.stderr)
        return 1
    progress = Progress(float(torch.cuda.device_count()))
    found = survey(progress)
    progress.end()
    folder = Path(os.environ.get("GPUDECK_RESULT", "result.json")).parent
    (folder / FILE).write_bytes(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
