"""Matrix products on a GPU, beside cuBLAS.

    python -m tests.benchmarks.gemm --minutes 3 --out FOLDER [--sweep few]

Shapes are those of published models. All contenders of a shape take turns in one run; each
replays a CUDA graph over inputs that do not fit the cache together. Every result is checked against
float64 first. In FP8 cuBLAS and what `auto` learned are timed twice: on operands that were rounded
before, and with the rounding of `a` in the figure, as that of activations is in a layer.
gemm_auto.csv says which backend `auto` takes by the shipped table, which by two calls without it,
and how fast these are beside the best. `--sweep` times the kernels with other tiles instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from gpudeck import accel
from gpudeck.accel.lessons import usage
from gpudeck.accel.lessons.records import Measured
from gpudeck.accel.primitives.gemm import dispatch, hopper, lessons, portable, table
from gpudeck.accel.primitives.gemm.backends import BACKENDS
from gpudeck.accel.primitives.gemm.dispatch import choose
from gpudeck.accel.primitives.gemm.low_precision import OF_A, OF_B
from gpudeck.accel.primitives.gemm.operands import Operands, arrange
from gpudeck.accel.primitives.gemm.reference import reference
from gpudeck.accel.primitives.quantize.fp8 import (
    DTYPES,
    GRANULARITIES,
    Fp8,
    Granularity,
    emulate,
    fp8_quantize,
)
from gpudeck.accel.primitives.quantize.fused import quantize_both_ways
from gpudeck.accel.runtime.graphs import Captured
from gpudeck.accel.runtime.timing import copies_beyond_cache
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.benchmarks.turns import in_turn

LAYERS = {
    "Llama-3-8B qkv": (6144, 4096), "Llama-3-8B gate_up": (28672, 4096),
    "Llama-3-8B down": (4096, 14336), "Llama-3-70B o": (8192, 8192),
    "Llama-3-70B down": (8192, 28672), "DeepSeek-V3 o": (7168, 16384),
    "DeepSeek-V3 gate_up": (4096, 7168), "DeepSeek-V3 down": (7168, 2048),
    "DeepSeek-V3 q": (24576, 1536), "Qwen2.5-7B o": (3584, 3584), "GPT-2 mlp": (3072, 768),
}  # fmt: skip
"""The n and k of products with weights."""
ROWS = {
    "bfloat16": (
        *((m, "Llama-3-8B qkv") for m in (1, 16, 64, 256, 1024, 4096, 16384)),
        *((m, "Llama-3-8B down") for m in (1, 64, 512, 2048, 8192)),
        *((m, "Llama-3-8B gate_up") for m in (1, 128, 1024, 4096)),
        *((m, "Llama-3-70B o") for m in (32, 1024, 8192)),
        *((m, "DeepSeek-V3 o") for m in (16, 4096)),
        *((m, "DeepSeek-V3 gate_up") for m in (64, 4096)),
        *((m, "DeepSeek-V3 q") for m in (1024, 4096)),
        *((m, "Qwen2.5-7B o") for m in (1, 2048, 16384)),
        *((m, "GPT-2 mlp") for m in (1024, 8192)),
    ),
    "fp8": (
        *((m, "DeepSeek-V3 o") for m in (1024, 4096, 8192)),
        *((m, "DeepSeek-V3 gate_up") for m in (1024, 4096, 16384)),
        *((m, "DeepSeek-V3 down") for m in (1024, 4096, 16384)),
        *((m, "DeepSeek-V3 q") for m in (1024, 4096)),
        *((m, "Llama-3-8B qkv") for m in (1024, 4096, 16384)),
        *((m, "Llama-3-8B down") for m in (2048, 8192)),
        *((m, "Llama-3-8B gate_up") for m in (2048, 8192)),
        *((m, "Llama-3-70B o") for m in (4096, 16384)),
        *((m, "DeepSeek-V3 o") for m in (1, 16, 64)),
        *((m, "DeepSeek-V3 gate_up") for m in (1, 16, 64)),
        *((m, "Llama-3-8B qkv") for m in (1, 16, 64)),
    ),
}
RECIPES = ("block", "row", "tensor", "tile")
"""Those of fp8_gemm, and scales of 1x128 tiles for both operands."""
LEFT: dict[str, Granularity] = {**OF_A, "tile": "tile"}
RIGHT: dict[str, Granularity] = {**OF_B, "tile": "tile"}
PARTS = ("bfloat16", *RECIPES, "rounding")
CONTENDERS = ("cublas", "hopper", "triton")
CHECKED = 128
"""The rows that are checked against float64."""
BOUNDS = {"bfloat16": 3e-3, "block": 4e-3, "row": 1e-2, "tensor": 1e-2, "tile": 4e-3}
"""Of the relative error: rounding to bfloat16, and sums of FP8 that the tensor cores shorten."""
SWEPT = {
    "2x256x4": hopper.Shape(2, 256, 4, 240, 24, 168),
    "2x256x3": hopper.Shape(2, 256, 3, 240, 24, 168),
    "2x128x6": hopper.Shape(2, 128, 6, 240, 24, 168),
    "2x128x4": hopper.Shape(2, 128, 4, 240, 24, 168),
    "3x128x5": hopper.Shape(3, 128, 5, 160, 32, 128),
}
SWEPT_FOR = {"bfloat16": tuple(SWEPT), "tensor": tuple(SWEPT)[:3], "block": tuple(SWEPT)[2:]}
SWEPT_TILES = {
    "bfloat16": (
        portable.Tiles(128, 256, 64, 8, 3), portable.Tiles(128, 256, 64, 8, 4),
        portable.Tiles(128, 128, 64, 8, 4), portable.Tiles(128, 128, 64, 4, 4),
    ),
    "tensor": (portable.Tiles(128, 256, 128, 8, 3), portable.Tiles(128, 128, 128, 8, 4)),
    "block": (
        portable.Tiles(64, 128, 128, 4, 4), portable.Tiles(128, 128, 128, 8, 3),
        portable.Tiles(64, 256, 128, 8, 3),
    ),
}  # fmt: skip
SWEPT_SHAPES = ((8192, 8192, 8192), (4096, 4096, 7168))
FEW = {
    f"{m} rows of b, {stages} stages, k in {splits}": (m, stages, splits)
    for m in (64, 128)
    for stages in (4, 8, 12)
    for splits in (1, 2, 3, 4, 6, 8)
}
FEW_SHAPES = [
    (layer, "block", m)
    for layer in ("DeepSeek-V3 o", "DeepSeek-V3 gate_up", "Llama-3-8B qkv")
    for m in (16, 64)
]
AS_CHOSEN = ("cublas", "triton")
CUDA = torch.device("cuda", 0)


class Posed(NamedTuple):
    """Hold the operands of a product, and what the left one was rounded from."""

    operands: Operands
    source: Tensor
    granularity: Granularity | None
    """Of the left operand; None in bfloat16."""

    def rounded(self) -> Operands:
        """Round the left operand again."""
        assert self.granularity is not None
        left = fp8_quantize(self.source, self.granularity)
        return replace(self.operands, a=left.values.unsqueeze(0), scale_a=left.scales)


def posed(m: int, n: int, k: int, precision: str, count: int) -> list[Posed]:
    """Draw `count` sets of operands; a weight [n,k] is the right one."""
    made = []
    for _ in range(count):
        a, b = (torch.randn(size, k, device=CUDA).bfloat16() for size in (m, n))
        if precision == "bfloat16":
            made.append(Posed(arrange(a, b.t(), None, None, None, None, None), a, None))
            continue
        left = fp8_quantize(a, LEFT[precision])
        right = fp8_quantize(b, RIGHT[precision]).t
        scales = (left.scales, right.scales)
        x = arrange(left.values, right.values, None, None, torch.bfloat16, scales, None)
        made.append(Posed(x, a, LEFT[precision]))
    return made


def error(x: Operands, out: Tensor) -> float:
    """Return the relative error of some rows against float64; poisoned results count as wrong."""
    m = x.problem.m
    rows = torch.randperm(m, device=CUDA)[: min(m, CHECKED)]
    scale_a = x.scale_a if x.scale_a is None or len(x.scale_a) == 1 else x.scale_a[rows]
    part = replace(x, a=x.a[:, rows], scale_a=scale_a)
    exact, got = reference(part), out[:, rows].double()
    found = float((got - exact).norm() / exact.norm())
    return found if found == found else 1e30


Calls = dict[str, Callable[[Posed], Tensor]]
Spreads = dict[str, dict[str, float]]
WITH_ROUNDING = " with rounding"
"""Ends the name of a contender that rounds `a` in its time."""


def by_backend(name: str) -> Callable[[Posed], Tensor]:
    """Return a call of a backend."""
    return lambda x: BACKENDS[name].run(x.operands)


def rounding_by_backend(name: str) -> Callable[[Posed], Tensor]:
    """Return a call of a backend after the rounding of `a`."""
    return lambda x: BACKENDS[name].run(x.rounded())


def timed(sets: list[Posed], calls: Calls, bound: float, seconds: float) -> Spreads:
    """Check and time contenders in turns; return milliseconds of those that are right."""
    ready: dict[str, Captured] = {}
    errors: dict[str, float] = {}
    for name, call in calls.items():
        try:
            errors[name] = error(sets[0].operands, call(sets[0]))
            if not errors[name] < bound:
                print("WRONG", name, sets[0].operands.problem.precision, errors[name], flush=True)
                continue
            ready[name] = Captured(lambda call=call: [call(x) for x in sets], CUDA)  # type: ignore[misc]
        except Exception as e:  # noqa: BLE001 - the others are measured all the same
            print("refused:", name, f"{type(e).__name__}: {e}".splitlines()[0][:160], flush=True)
    if not ready:
        return {}
    return {
        name: {
            **{s: v / len(sets) if s != "count" else v for s, v in spread(m.samples_ms).items()},
            "error": errors[name],
            "clock_mhz": round(mhz),
        }
        for name, (m, mhz) in zip(ready, in_turn(list(ready.values()), seconds, CUDA), strict=True)
    }


def _rates(flops: float, found: Spreads) -> dict[str, str]:
    return {name: f"{flops / ms['median'] / 1e9:.0f}" for name, ms in found.items()}


def learned(x: Posed) -> Measured | None:
    """Return what `auto` learns at two calls without the shipped table; None without a choice."""
    accel.learning("once")
    try:
        with mock.patch.object(table, "find_measured", lambda *_: table.Nearest({})):
            for _ in range(usage.AT_CALL):
                p = x.operands.problem
                BACKENDS[lessons.choose_learning(p, lambda: x.operands).backend].run(x.operands)
    except Exception as e:  # noqa: BLE001 - the backends are measured all the same
        print("DID NOT LEARN", x.operands.problem, f"{type(e).__name__}: {e}", flush=True)
        return None
    problem = x.operands.problem
    return dispatch.LEARNED.find(problem.device, "forward", problem.spot)


def by_table(x: Posed) -> str:
    """Return the backend that the shipped table gives."""
    accel.learning("off")
    return choose(x.operands.problem).backend


def judged(x: Posed, lesson: Measured, found: Spreads) -> dict[str, object]:
    """Return how fast the choices of `auto` are beside the best backend."""
    ms = {name: at["median"] for name, at in found.items() if name in BACKENDS}
    best = min(ms, key=ms.__getitem__)
    cold = by_table(x)
    return {
        "best": best, "ms": ms[best], "learned": lesson.fastest,
        "learned_share": f"{ms[best] / ms[lesson.fastest]:.3f}",
        "by_table": cold, "by_table_share": f"{ms[best] / ms[cold]:.3f}",
        "microseconds_learned": " ".join(f"{n} {us:g}" for n, us in lesson.microseconds.items()),
        "calls": lesson.calls,
    }  # fmt: skip


Tables = tuple[list[dict[str, object]], list[dict[str, object]]]


def warm(precisions: list[str]) -> None:
    """Compile all kernels, beside whatever else runs."""
    for precision in precisions:
        for m, layer in ROWS["bfloat16" if precision == "bfloat16" else "fp8"]:
            (x,) = posed(m, *LAYERS[layer], precision, 1)
            for name in CONTENDERS:
                if BACKENDS[name].refusal(x.operands.problem) is None:
                    BACKENDS[name].run(x.operands)


def rows(seconds: float, until: float, precisions: list[str], least: int) -> Iterator[Tables]:
    """Measure every shape of `least` rows or more, precision by precision, while there is time.

    Yields:
        The rows of gemm.csv and of gemm_auto.csv, of one shape after the other.
    """
    where = context(torch.cuda.get_device_name(), ("torch", "triton"), SOURCES["gemm"])
    for precision in precisions:
        for m, layer in ROWS["bfloat16" if precision == "bfloat16" else "fp8"]:
            if m < least:
                continue
            if time.monotonic() > until:
                print("no time for", precision, m, layer, flush=True)
                continue
            n, k = LAYERS[layer]
            size = (m + n) * k * (2 if precision == "bfloat16" else 1) + 2 * m * n
            sets = posed(m, n, k, precision, min(8, copies_beyond_cache(size, CUDA)))
            p = sets[0].operands.problem
            names = [name for name in CONTENDERS if BACKENDS[name].refusal(p) is None]
            calls: Calls = {name: by_backend(name) for name in names}
            lesson = learned(sets[0])
            if precision != "bfloat16":
                both = [name for name in names if name in ("cublas", lesson and lesson.fastest)]
                calls |= {name + WITH_ROUNDING: rounding_by_backend(name) for name in both}
            found = timed(sets, calls, BOUNDS[precision], seconds)
            shape = {**where, "precision": p.precision, "layer": layer, "m": m, "n": n, "k": k}
            timings: list[dict[str, object]] = []
            for name, ms in found.items():
                backend = name.removesuffix(WITH_ROUNDING)
                peer = found.get(name.replace(backend, "cublas"))
                timings.append({
                    **shape, "backend": backend, "rounding": name != backend, "ms": ms["median"],
                    "p95_ms": ms["p95"], "count": ms["count"], "clock_mhz": ms["clock_mhz"],
                    "tflops": f"{p.flops / ms['median'] / 1e9:.1f}",
                    "gb_s": f"{p.moved / ms['median'] / 1e6:.0f}",
                    "times_cublas": f"{peer['median'] / ms['median']:.3f}" if peer else "",
                    "error": f"{ms['error']:.2e}",
                })  # fmt: skip
            choices = [{**shape, **judged(sets[0], lesson, found)}] if found and lesson else []
            print(p.precision, m, layer, _rates(p.flops, found), flush=True)
            yield timings, choices
            del sets
            torch.cuda.empty_cache()


def rounding(seconds: float) -> list[dict[str, object]]:
    """Time rounding to FP8, alone and with the transpose, as a share of the memory's rate."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton"), SOURCES["gemm"])
    found = []
    x = torch.randn(16384, 8192, device=CUDA).bfloat16()
    copy = torch.empty_like(x)
    for granularity in GRANULARITIES:
        for across in (False, True):
            scale = torch.ones(1, device=CUDA) if granularity == "tensor" else None
            calls: list[Callable[[], object]] = [
                lambda g=granularity, a=across, s=scale: quantize_both_ways(
                    x, g, DTYPES[0], s, across=a
                ),  # type: ignore[misc]
                lambda: copy.copy_(x),
            ]
            for call in calls:
                call()
            (ours, mhz), (base, _) = in_turn(calls, seconds, CUDA)
            ms, copied = (spread(m.samples_ms)["median"] for m in (ours, base))
            moved = x.numel() * (2 + 1 + across)
            rate, of_copy = moved / ms / 1e6, 4 * x.numel() / copied / 1e6
            share = f"{rate / of_copy:.3f}"
            row = {
                **where, "granularity": granularity, "with_transpose": across, "ms": ms,
                "clock_mhz": round(mhz), "gb_s": f"{rate:.0f}", "share_of_copy": share,
            }  # fmt: skip
            found.append(row)
            print("quantise", granularity, across, f"{ms:.3f} ms", share, flush=True)
    return found


def exactness() -> None:
    """Compare the kernels that round with the definition in torch, bit for bit."""
    random = torch.randn(300, 520, device=CUDA) * torch.logspace(-4, 3, 300, device=CUDA)[:, None]
    random[3, 5], random[9, 200], random[20] = float("nan"), float("inf"), 0.0
    random[40:170, 128:256] = 0.0
    kinds = ((torch.bfloat16, 300), (torch.bfloat16, 299), (torch.float32, 300))
    for dtype, rows in (*kinds, (torch.float16, 300)):
        x = random[:rows].to(dtype)
        for granularity in GRANULARITIES:
            for fp8 in DTYPES:
                made = quantize_both_ways(x, granularity, fp8)
                for got, given in zip(made, (x, x.t()), strict=True):
                    assert isinstance(got, Fp8)
                    right = emulate(given.cpu(), granularity, fp8)
                    a, b = got.values.float().cpu(), right.values.float()
                    wrong = int(((a != b) & ~(a.isnan() & b.isnan())).sum())
                    scales = int((got.scales.cpu() != right.scales).sum())
                    if wrong or scales:
                        print("DIFFERS", dtype, rows, granularity, fp8, wrong, scales, flush=True)
    print("exactness checked", flush=True)


def sweep(seconds: float, out: Path) -> None:
    """Time the kernels with other tiles on many rows; read off the terminal."""
    for precision, names in SWEPT_FOR.items():
        for m, n, k in SWEPT_SHAPES:
            sets = posed(m, n, k, precision, 1)
            calls: Calls = {"cublas": by_backend("cublas")}
            for name in names:
                calls[name] = lambda x, s=SWEPT[name]: hopper.with_shape(x.operands, s)  # type: ignore[misc]
            for t in SWEPT_TILES[precision]:
                calls[str(tuple(t[:5]))] = lambda x, t=t: portable.with_tiles(x.operands, t)  # type: ignore[misc]
            found = timed(sets, calls, BOUNDS[precision], seconds)
            flops = sets[0].operands.problem.flops
            print("sweep", precision, (m, n, k), _rates(flops, found), flush=True)


def sweep_few(seconds: float, out: Path) -> None:
    """Time the Triton kernel with other tiles on few rows, and write gemm_few.csv."""
    where, rows = context(torch.cuda.get_device_name(), ("torch", "triton"), SOURCES["gemm"]), []
    for layer, precision, m in FEW_SHAPES:
        n, k = LAYERS[layer]
        sets = posed(m, n, k, precision, min(8, copies_beyond_cache(n * k, CUDA)))
        calls: Calls = {name: by_backend(name) for name in AS_CHOSEN}
        for name, (bm, stages, splits) in FEW.items():
            inner = 128 if precision == "block" else 256 // sets[0].operands.a.itemsize
            t = portable.Tiles(bm, max(16, m), inner, 4, stages, splits, True)
            calls[name] = lambda x, t=t: portable.with_tiles(x.operands, t)  # type: ignore[misc]
        found = timed(sets, calls, BOUNDS[precision], seconds)
        us = {name: f"{found[name]['median'] * 1e3:.1f}" for name in found}
        ranked = sorted(found, key=lambda name: found[name]["median"])
        told = [f"{name} {us[name]}" for name in (*AS_CHOSEN, *ranked[:10]) if name in us]
        print("few", precision, (m, n, k), "us:", "; ".join(told), flush=True)
        rows += [
            {
                **where, "precision": sets[0].operands.problem.precision, "layer": layer, "m": m,
                "n": n, "k": k, "contender": name, "ms": at["median"], "p95_ms": at["p95"],
                "count": at["count"], "clock_mhz": at["clock_mhz"], "error": f"{at['error']:.2e}",
            }
            for name, at in found.items()
        ]  # fmt: skip
        write("gemm_few", rows, out)


SWEEPS = {"many": sweep, "few": sweep_few}


def main() -> None:
    """Measure and write gemm.csv and fp8_quantize.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each contender")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rows", type=int, default=1, help="the fewest of a shape")
    parser.add_argument("--warm", action="store_true", help="only compile")
    parser.add_argument("--sweep", choices=SWEEPS)
    parser.add_argument("--parts", default=",".join(PARTS), help="in the order of measuring")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    parts = given.parts.split(",")
    with torch.no_grad():
        if given.warm:
            warm(parts)
            return
        if given.sweep:
            SWEEPS[given.sweep](given.seconds, given.out)
            return
        found: Tables = [], []
        for new in rows(given.seconds, until, [p for p in parts if p != "rounding"], given.rows):
            for name, kept, more in zip(("gemm", "gemm_auto"), found, new, strict=True):
                kept.extend(more)
                write(name, kept, given.out)
        if "rounding" in parts:
            exactness()
            write("fp8_quantize", rounding(given.seconds), given.out)


if __name__ == "__main__":
    main()
