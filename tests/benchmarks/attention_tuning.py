"""Measure shapes of many kinds for the tables that ship, none of them a shape of the zoo.

    python -m tests.benchmarks.attention_tuning [--ms 40] [--out DIR]
    python -m tests.benchmarks.attention_tuning --together FOLDER [--warm]   # several processes

Head sizes between the usual ones, short rows, grouped heads, windows, softcaps, biases, ragged
batches, cross attention, chunks and decoding, and the plain shapes of the grid, which `gpudeck run
tune` measures, too. The backends take turns on tensors that lie in memory as [B,S,H,D]. The rows
have the columns of accel/attention/measured; put those of shapes that no other table there has, and
without biases, into h200_shapes.csv, then run attention_fit --write.
Processes that name the same folder share the shapes (see `shared_gpu`); --warm only compiles.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle, product
from pathlib import Path

import torch
from msgspec.structs import asdict

from gpudeck.accel import learning
from gpudeck.accel.attention import Problem, describe
from gpudeck.accel.attention.backends import BACKENDS
from gpudeck.accel.attention.dispatch import refuse
from gpudeck.accel.attention.passes import backward, bind, forward
from gpudeck.accel.attention.table import Row
from gpudeck.accel.lessons.records import Direction
from gpudeck.accel.lessons.store import software
from gpudeck.accel.runtime import brief_timing
from gpudeck.accel.workloads.catalog import TOKENS, WIDTH
from tests.benchmarks.attention_draws import CUDA, Draw, draws
from tests.benchmarks.attention_shapes import ModelShape
from tests.benchmarks.rows import RESULTS, merge
from tests.benchmarks.shared_gpu import SharedGpu

NOT_MEASURED = ("math", "reference")
KEYS = (
    "direction", "head_dim", "causal", "batch", "heads", "kv_heads", "seq_q", "seq_k", "left",
    "softcap", "bias", "ragged",
)  # fmt: skip


def shapes() -> Iterator[ModelShape]:
    """Yield the shapes, in an order of which each prefix has all kinds."""
    kinds = [
        list(kind)
        for kind in (
            _head_sizes(), _short(), _grouped(), _others(), _decoding(), _windows(), _cross(),
            _plain(),
        )
    ]  # fmt: skip
    while any(kinds):
        for kind in kinds:
            if kind:
                yield kind.pop(0)


def _head_sizes() -> Iterator[ModelShape]:
    for dim in (80, 96, 192, 40, 72, 160, 112):
        for seq, batch, causal in ((2048, 2, True), (512, 8, False), (240, 16, False)):
            yield _shape(batch, 16, 16, seq, seq, dim, causal)


def _short() -> Iterator[ModelShape]:
    for batch, seq in ((64, 150), (128, 220), (64, 100), (32, 350), (16, 577)):
        yield _shape(batch, 12, 12, seq, seq, 64, False)
    yield _shape(128, 12, 12, 90, 90, 64, True)
    yield _shape(16, 16, 16, 280, 280, 80, False)


def _grouped() -> Iterator[ModelShape]:
    sizes = ((1, 32, 8, 4096, 128), (1, 32, 8, 1024, 128), (1, 24, 4, 2048, 128))
    for batch, heads, kv_heads, seq, dim in (*sizes, (4, 16, 4, 700, 128), (1, 32, 8, 4096, 64)):
        yield _shape(batch, heads, kv_heads, seq, seq, dim, True)
    for batch, queries, keys in ((8, 400, 1200), (4, 1500, 64), (2, 4096, 100), (8, 200, 800)):
        yield _shape(batch, 16, 16, queries, keys, 64, False)
    for heads, kv_heads, queries, keys in ((32, 8, 512, 4096), (28, 4, 1500, 8000)):
        yield _shape(1, heads, kv_heads, queries, keys, 128, True, trained=False)


def _others() -> Iterator[ModelShape]:
    yield _shape(2, 16, 16, 1024, 1024, 64, False, mask="learned")
    yield _shape(1, 32, 8, 4096, 4096, 128, True, left=1023)
    yield _shape(1, 16, 8, 2048, 2048, 256, True, softcap=50.0)
    yield _packed(32, 8, 128, True, 1000, 2000, 3000, 500, 800)
    yield _shape(100, 4, 4, 256, 256, 32, False, mask="learned")
    yield _shape(16, 12, 12, 384, 384, 64, False, mask="padding")
    yield _shape(1, 16, 8, 4096, 4096, 256, True, left=511)
    yield _packed(12, 12, 64, False, *(30 + 53 * i % 370 for i in range(64)))
    yield _shape(4, 32, 32, 1024, 1024, 128, True, mask="alibi")
    yield _shape(1, 16, 8, 4096, 4096, 256, True, left=2047, softcap=50.0)
    yield _shape(512, 4, 4, 64, 64, 32, False, mask="learned")
    yield _shape(2, 16, 16, 2048, 2048, 64, True, left=255)
    yield _shape(8, 8, 8, 384, 384, 64, False, mask="learned")
    yield _shape(1, 32, 8, 8192, 8192, 128, True, left=2047)
    yield _packed(32, 8, 128, True, *[1024] * 8)
    yield _shape(1, 32, 8, 4096, 4096, 128, True, softcap=30.0)


def _windows() -> Iterator[ModelShape]:
    for seq, left in ((4096, 511), (2048, 191), (8192, 4095)):
        for dim, heads, kv_heads in ((64, 16, 16), (256, 16, 8), (128, 24, 8), (64, 32, 4)):
            yield _shape(1, heads, kv_heads, seq, seq, dim, True, left=left)
    for dim, seq in ((256, 4096), (128, 1024), (64, 2048), (256, 1024)):
        yield _shape(1, 16, 8, seq, seq, dim, True, softcap=50.0)
    yield _shape(1, 16, 8, 8192, 8192, 256, True, left=4095, softcap=50.0)


def _cross() -> Iterator[ModelShape]:
    for batch, queries, keys in ((4, 2048, 90), (8, 150, 600), (2, 1000, 250), (16, 90, 256)):
        for dim in (64, 72, 40, 128):
            yield _shape(batch, 16, 16, queries, keys, dim, False)


def _plain() -> Iterator[ModelShape]:
    """Yield the shapes of attention_grid.TUNED, those of 16,384 tokens first."""
    for seq in (512, 8192, 2048, 1024, 4096, 16384):
        for dim, causal in product((128, 64, 256), (True, False)):
            yield _shape(TOKENS // seq, WIDTH // dim, WIDTH // dim, seq, seq, dim, causal)
    for seq in (1024, 4096, 512, 2048, 8192):
        for dim, causal in product((128, 64, 256), (True, False)):
            yield _shape(1, 16, 16, seq, seq, dim, causal)
    for batch, seq in product((8, 32), (256, 128, 512)):
        for dim, causal in product((128, 64), (True, False)):
            yield _shape(batch, 8, 8, seq, seq, dim, causal)


def _decoding() -> Iterator[ModelShape]:
    for batch, heads, kv_heads, queries, keys, dim in (
        (1, 32, 8, 1, 2048, 128),
        (16, 32, 8, 1, 4096, 128),
        (1, 32, 8, 4, 8192, 128),
        (1, 32, 8, 1, 16384, 128),
        (64, 8, 8, 1, 1024, 64),
        (8, 16, 8, 1, 8192, 256),
        (128, 14, 2, 1, 1024, 64),
        (1, 64, 8, 1, 65536, 128),
        (32, 16, 16, 1, 2000, 64),
        (1, 64, 8, 1, 8192, 128),
        (8, 32, 8, 2, 4096, 128),
        (4, 64, 8, 1, 20000, 128),
        (4, 16, 8, 1, 2048, 256),
        (1, 28, 4, 1, 4096, 128),
        (256, 16, 4, 1, 1000, 64),
        (1, 32, 8, 8, 32768, 128),
    ):
        yield _shape(batch, heads, kv_heads, queries, keys, dim, True, trained=False)


def _shape(*sizes: int, **wishes: object) -> ModelShape:
    *numbers, causal = sizes
    name = " ".join(map(str, (*numbers, bool(causal), *wishes.values())))
    return ModelShape("tuning", name, *numbers, causal=bool(causal), **wishes)  # type: ignore[arg-type]


def _packed(heads: int, kv_heads: int, dim: int, causal: bool, *lengths: int) -> ModelShape:
    longest = max(lengths)
    name = f"{len(lengths)} of up to {longest}"
    sizes = (len(lengths), heads, kv_heads, longest, longest, dim, causal)
    return ModelShape("tuning", name, *sizes, lengths=lengths)


def compiled(shape: ModelShape, direction: Direction) -> dict[str, Callable[[], object]]:
    """Return a compiled call for each backend that can compute a pass, which takes the sets of
    tensors in turn."""
    sets = draws(shape)
    trained = direction == "backward"
    for x in sets:
        if x.bias is not None and shape.mask == "learned" and trained:
            x.bias.requires_grad_()
    first = sets[0]
    with torch.set_grad_enabled(trained):
        problem = describe(
            first.q, first.k, first.v, bias=first.bias, seqlens=first.ragged, causal=shape.causal,
            window=(shape.left, None), softcap=shape.softcap,
        )  # fmt: skip
    names = [n for n in BACKENDS if n not in NOT_MEASURED]
    able = [n for n in names if refuse(problem, n, direction) is None]
    calls = {name: _in_turn(sets, problem, name, direction) for name in able}
    brief_timing.medians(calls, CUDA, 0.0)
    return calls


def _in_turn(
    sets: list[Draw], problem: Problem, name: str, direction: Direction
) -> Callable[[], object]:
    calls = []
    for draw in sets:
        x = draw.inputs("bshd")
        if direction == "forward":
            calls.append(bind(x, problem, name))
        else:
            out, lse = forward(x, problem, "triton")
            calls.append(partial(backward, draw.upstream("bshd"), x, out, lse, problem, name))
    turns = cycle(calls)

    def one() -> object:
        return next(turns)()

    return one


def rows(
    shape: ModelShape, direction: Direction, calls: Mapping[str, Callable[[], object]], ms: float
) -> list[Row]:
    """Time the compiled calls of one pass of a shape for some milliseconds."""
    found, failed, _ = brief_timing.medians(calls, CUDA, ms)
    for name, why in failed.items():
        print(f"{shape.name} {direction}: {name} failed: {why}", flush=True)
    flops = shape.flops * (2.5 if direction == "backward" else 1.0)
    bias = {"none": "none", "padding": "bool"}.get(shape.mask, "float")
    about = {
        "gpu": torch.cuda.get_device_name(), "direction": direction, "dtype": "bfloat16",
        "head_dim": shape.head_dim, "causal": shape.causal, "batch": shape.batch,
        "heads": shape.heads, "kv_heads": shape.kv_heads, "seq_q": shape.seq_q,
        "seq_k": shape.seq_k, "versions": software(), "date": time.strftime("%Y-%m-%d"),
        "left": -1 if shape.left is None else shape.left, "softcap": shape.softcap,
        "bias": bias, "ragged": bool(shape.lengths),
    }  # fmt: skip
    return [
        Row(**about, backend=name, microseconds=round(us, 2), low=round(us, 2), high=round(us, 2),
            tflops=float(f"{flops / us / 1e6:.4g}"))  # type: ignore[arg-type]
        for name, us in found.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ms", type=float, default=40.0, help="for all backends of a shape")
    parser.add_argument("--together", type=Path, help="the folder that processes share")
    parser.add_argument("--warm", action="store_true", help="compile only")
    parser.add_argument("--until", type=float, default=math.inf, help="no pass begins after these"
                        " seconds")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    begun = time.monotonic()
    learning("off")
    torch.set_grad_enabled(False)
    torch.zeros(1, device=CUDA)
    todo: list[tuple[ModelShape, Direction]] = [
        (shape, direction)
        for shape in shapes()
        for direction in (("forward", "backward") if shape.trained else ("forward",))
    ]
    with tempfile.TemporaryDirectory() as folder:
        gpu = SharedGpu(options.together or Path(folder))
        for shape, direction in gpu.claimed(todo):
            if time.monotonic() - begun > options.until:
                return
            if options.warm:
                compiled(shape, direction)
                continue
            with gpu.preparing():
                calls = compiled(shape, direction)
                with gpu.alone():
                    new = rows(shape, direction, calls, options.ms)
            told = ", ".join(f"{r.backend} {r.microseconds:.1f}" for r in new)
            print(f"{direction:8} {shape.name}: {told}", flush=True)
            merge("attention_tuning", [asdict(row) for row in new], KEYS, options.out)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
