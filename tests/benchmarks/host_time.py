"""Measure the host time of an attention call, layer by layer.

    python -m tests.benchmarks.host_time [--stub] [--out DIR]

The host time is the time until the next call can begin, whatever the GPU does meanwhile. It is
measured on a GPU, beside torch's own calls; or with --stub on any machine, where a driver that does
nothing launches our kernels on tensors of the CPU. Only the allocator differs from a run on a GPU.
The layers lie inside each other, so the cost of a layer is its time minus that of the next one.
Each is called a few hundred times in turn with the others, round by round. The rows go to
host_time.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gpudeck.accel.attention import attention, choose, describe
from gpudeck.accel.attention.inputs import arrange
from gpudeck.accel.attention.passes import backward, forward
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.stub_driver import stub_driver

SHAPE = (2, 8, 128, 64)
ROUNDS, CALLS = 40, 100
KERNELS = {"triton": "portable", "hopper": "hopper"}


def layers(q: Tensor, k: Tensor, v: Tensor, backend: str) -> dict[str, Callable[[], object]]:
    """Return the layers of one of our backends, outermost first."""
    problem, x = describe(q, k, v), arrange(q, k, v, None, None, "bhsd")
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    out, lse = forward(x, problem, backend)
    run = import_module(f"gpudeck.accel.attention.kernels.{KERNELS[backend]}.forward").plan_run(
        q, k, v, problem.rules
    )
    plan = run.__self__
    claims = () if backend == "triton" else (torch.zeros(1, dtype=torch.int32, device=q.device),)
    return {
        "attention": partial(attention, q, k, v, backend=backend),
        "attention, to be differentiated": partial(attention, *leaves, backend=backend),
        "forward pass, not planned": partial(forward, x, problem, backend),
        "forward pass, planned": partial(run, q, k, v),
        "its results allocated": lambda: (torch.empty_like(q), torch.empty_like(plan.lse)),
        "its launch": partial(plan.attend, q, k, v, out, lse, *claims),
        "backward pass": partial(backward, out, x, out, lse, problem, backend),
    }


def peers(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Callable[[], object]]:
    """Return torch's calls, as users call them and one level below."""
    aten = torch.ops.aten
    return {
        "scaled_dot_product_attention": partial(scaled_dot_product_attention, q, k, v),
        "flash, below it": partial(aten._scaled_dot_product_flash_attention, q, k, v),
        "cudnn, below it": partial(aten._scaled_dot_product_cudnn_attention, q, k, v, None, False),
    }


def microseconds(call: Callable[[], object]) -> float:
    """Return the host time of a call, while neither host nor GPU waits for the other."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


def measure(device: str) -> list[dict[str, object]]:
    q, k, v = (torch.randn(SHAPE, device=device, dtype=torch.float16) for _ in range(3))
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for backend in KERNELS:
        with contextlib.suppress(ValueError):  # not supported on this GPU
            choose(describe(q, k, v), backend)
            calls |= {(backend, name): call for name, call in layers(q, k, v, backend).items()}
    if device == "cuda":
        calls |= {("torch", name): call for name, call in peers(q, k, v).items()}
    took: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for number in range(ROUNDS + 1):
        for key, call in calls.items():
            found = microseconds(call)
            if number:  # the first call compiles
                took[key].append(found)
    return [
        {"by": by, "layer": name, "unit": "us", **spread(found)}
        for (by, name), found in took.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stub", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not options.stub and not torch.cuda.is_available():
        raise SystemExit(
            "torch cannot use a GPU here. To measure everything but the driver, add --stub"
        )
    torch.set_num_threads(1)
    with stub_driver() if options.stub else contextlib.nullcontext():
        rows = measure("cpu" if options.stub else "cuda")
    device = (
        f"no GPU, a stub for its driver; {platform.processor() or 'CPU'}"
        if options.stub
        else torch.cuda.get_device_name()
    )
    where = context(device, ["torch", "triton"])
    for row in rows:
        print(
            f"{row['by']:8} {row['layer']:34} {row['median']:7} us  "
            f"(least {row['min']}, P95 {row['p95']})"
        )
    print(
        write(
            "host_time_stub" if options.stub else "host_time",
            [row | where for row in rows],
            options.out,
        )
    )


if __name__ == "__main__":
    main()
