"""Compute what the hardware needs at least for a call: nothing that is honest is faster."""

from __future__ import annotations

import time

import torch

from gpudeck.accel.runtime.peaks import TABLE, peak_bandwidth, peak_tflops
from gpudeck.accel.search.tasks import Task
from gpudeck.accel.search.verdict import Roofline

_PRECISIONS = {torch.float32: "tf32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_SPAN_S = 0.1
"""The processor time of a measurement: on a busy machine it lasts longer, but is as thorough."""
_MEASURED_SIDE = 512
_MEASURED_BYTES = 1 << 18
_SLACK = 2.0
"""A CPU's measured rates are those of torch, which a better program may exceed."""


def roofline(task: Task, device: torch.device, mhz: float | None = None) -> Roofline | None:
    """Return the least time of a task at its timed sizes; None for a GPU whose peaks are unknown.

    On a GPU, peaks of arithmetic are scaled from the boost clock to the true clock where that was
    measured and is higher. Memory counts only if inputs and result exceed the last-level cache,
    from which they may be read otherwise. On a CPU both rates are measured in its caches, once
    more in each call; the highest rates so far count, as other programs only slow them down.
    """
    sizes = task.timed
    flops, moved = task.flops(sizes), task.moved(sizes)
    if device.type != "cuda":
        arithmetic, memory = _cpu_rates()
        seconds = max(flops / arithmetic, moved / memory)
        return Roofline(flops, moved, seconds * 1e6, "measured here, twice what torch reaches")
    properties = torch.cuda.get_device_properties(device)
    name = properties.name
    peak = peak_tflops(name, _PRECISIONS[task.dtype] if task.product else "float32")
    bandwidth = peak_bandwidth(name)
    if peak is None or bandwidth is None:
        return None
    # FP16 without tensor cores runs two at a time
    peak *= 1 if task.product or task.dtype is torch.float32 else 2
    boost = _boost_mhz(properties)
    peak *= max(1.0, mhz / boost) if mhz and boost else 1.0
    in_cache = moved <= properties.L2_cache_size
    seconds = max(flops / peak / 1e12, 0.0 if in_cache else moved / bandwidth)
    return Roofline(flops, moved, seconds * 1e6, TABLE[name].source, mhz)


def _boost_mhz(properties: object) -> float | None:
    """Return the highest clock that the driver allows, None where torch does not tell."""
    khz = getattr(properties, "clock_rate", None)
    return None if khz is None else khz / 1e3


_highest = [0.0, 0.0]
"""Operations and bytes a second of this CPU, as far as they were measured."""


def _cpu_rates() -> tuple[float, float]:
    """Return operations and bytes a second: of a product, and of a copy within the caches."""
    a = torch.randn(_MEASURED_SIDE, _MEASURED_SIDE)
    product = _fastest(lambda: a @ a)
    source = torch.zeros(_MEASURED_BYTES // 4)
    target = torch.empty_like(source)
    copied = _fastest(lambda: target.copy_(source))
    found = _SLACK * 2 * _MEASURED_SIDE**3 / product, _SLACK * 2 * _MEASURED_BYTES / copied
    _highest[:] = map(max, _highest, found)
    return _highest[0], _highest[1]


def _fastest(call: object) -> float:
    assert callable(call)
    least, end = float("inf"), time.thread_time() + _SPAN_S
    while time.thread_time() < end:
        begun = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - begun)
    return least
