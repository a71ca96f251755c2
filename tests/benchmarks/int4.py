"""Products with weights in four bits on a GPU, beside the kernels of others.

They are torch's int4 kernel, cuBLAS in bfloat16, and Marlin and Machete where the package vllm is
installed (see int4_peers).

    python -m tests.benchmarks.int4 --out FOLDER [--sweep] [--only 1,16]

Shapes are those of published models, groups have 128 columns. All contenders of a shape take turns;
each replays a CUDA graph over matrices that do not fit the cache together. Every result is checked
against float64. The rate counts each byte of the weights as they are stored, vectors and results
once; `of_copy` is its share of the rate at which the GPU copies. `stream` only reads the weights,
so that no product can be faster than the faster of its two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpudeck.accel.primitives.gemm.int4 import int4_backend, int4_gemm
from gpudeck.accel.primitives.gemm.int4_few import Cut, call_of, cut_of, few
from gpudeck.accel.primitives.quantize.int4 import Int4, int4_quantize
from gpudeck.accel.runtime.call import compile_kernel
from gpudeck.accel.runtime.graphs import Captured
from gpudeck.accel.runtime.timing import copies_beyond_cache, measure_in_turn
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.int4_peers import Machete, Marlin, find_operators
from tests.benchmarks.rows import RESULTS, context, installed, spread, write
from tests.benchmarks.turns import in_turn

CUDA = torch.device("cuda", 0)
LAYERS = {
    "Llama-3-8B gate_up": (28672, 4096), "DeepSeek-V3 o": (7168, 16384),
    "Llama-3-70B down": (8192, 28672), "Llama-3-8B down": (4096, 14336),
    "Llama-3-8B qkv": (6144, 4096),
}  # fmt: skip
VECTORS = (1, 2, 4, 8, 16, 32, 64)
CUTS = tuple(Cut(rows, parts) for rows in (16, 32) for parts in (1, 2, 4, 8, 16))
GROUP = 128
STREAMED = (2048, 4096)
"""The words that a program of `stream` reads."""
BOUNDS = {"torch int4": 2e-2, "machete": 2e-2}
"""Of the relative error; these two have zeros that are rounded to bfloat16. Others: 5e-3."""
PEERS = ("torch int4", "marlin", "machete")


@triton.jit
def read_all(words, sums, count, block: tl.constexpr):
    """Read `block` words and write their sum, so that all of them must be read."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    taken = tl.load(words + at, mask=at < count, other=0)
    tl.store(sums + tl.program_id(0), tl.sum(taken, 0))


def stream(p: Posed, block: int) -> Tensor:
    """Read the weights of a matrix and return sums of their words."""
    words = p.ours.packed.view(torch.int32)
    programs = triton.cdiv(words.numel(), block)
    sums = words.new_empty(programs)
    read_all[(programs,)](words, sums, words.numel(), block)
    return sums


class Posed:
    """Hold one matrix in every form, and vectors."""

    def __init__(self, count: int, rows: int, columns: int) -> None:
        weight = torch.randn(rows, columns, device=CUDA, dtype=torch.bfloat16)
        self.x = torch.randn(count, columns, device=CUDA, dtype=torch.bfloat16)
        self.ours = int4_quantize(weight, GROUP)
        self.wide = self.ours.dequantize(torch.bfloat16)
        self.torch_packed, self.torch_scales = for_torch(self.ours)
        there = find_operators() is not None
        self.marlin = Marlin(self.ours) if there else None
        self.machete = Machete(self.ours) if there else None

    @property
    def moved(self) -> int:
        """Return the fewest bytes that a product moves."""
        count, (rows, columns) = len(self.x), self.ours.shape
        return self.ours.nbytes + 2 * count * (rows + columns)


def for_torch(b: Int4) -> tuple[Tensor, Tensor]:
    """Return a matrix as torch's kernel takes it: (value - 8) * scale + zero, which is another
    zero; its bytes hold neighbours the other way round."""
    swapped = (b.packed >> 4) | (b.packed << 4)
    packed = torch.ops.aten._convert_weight_to_int4pack(swapped.contiguous(), 8)
    zeros = (8 - b.zeros.float()) * b.scales.float()
    both = torch.stack((b.scales.float(), zeros), -1).transpose(0, 1)
    return packed, both.to(torch.bfloat16).contiguous()


def contenders(count: int, sweep: bool) -> dict[str, Callable[[Posed], Tensor]]:
    """Return what is measured, by name."""
    calls: dict[str, Callable[[Posed], Tensor]] = {
        "auto": lambda p: int4_gemm(p.x, p.ours),
        "torch int4": lambda p: torch.ops.aten._weight_int4pack_mm(
            p.x, p.torch_packed, GROUP, p.torch_scales
        ),
        "cublas bf16": lambda p: p.x @ p.wide.t(),
    }
    if find_operators() is not None:
        calls |= {"marlin": lambda p: p.marlin(p.x), "machete": lambda p: p.machete(p.x)}
    if count > 1:
        for name in ("few", "tiles"):
            calls[name] = lambda p, name=name: int4_gemm(p.x, p.ours, backend=name)  # type: ignore[misc]
    for block in STREAMED:
        calls[f"stream {block}"] = lambda p, block=block: stream(p, block)  # type: ignore[misc]
    if sweep:
        for cut in CUTS:
            calls[f"{cut.rows} x {cut.parts}"] = lambda p, cut=cut: few(p.x, p.ours, None, cut)  # type: ignore[misc]
    return calls


def error(p: Posed, out: Tensor) -> float:
    """Return the relative error against float64."""
    exact = p.x.double() @ p.ours.dequantize(torch.float64).T
    found = float((out.double() - exact).norm() / exact.norm())
    return found if found == found else 1e30


def copy_rate(seconds: float) -> float:
    """Return the GB/s, read and written, at which a gigabyte is copied."""
    x = torch.randn(1 << 28, device=CUDA)
    y = torch.empty_like(x)
    (loop,) = measure_in_turn([lambda: y.copy_(x)], seconds, CUDA, lambda *_: None, lambda _: None)
    return 2 * x.nbytes / spread(loop.samples_ms)["median"] / 1e6


def rows(seconds: float, counts: tuple[int, ...], sweep: bool) -> Iterator[dict[str, object]]:
    """Measure every shape."""
    where = context(
        torch.cuda.get_device_name(), installed(("torch", "triton", "vllm")), SOURCES["int4"]
    )
    copied = copy_rate(seconds)
    print(f"a copy moves {copied:.0f} GB/s", flush=True)
    for count in counts:
        for layer, (n, k) in LAYERS.items():
            began = time.monotonic()
            sets = [
                Posed(count, n, k) for _ in range(min(8, copies_beyond_cache(n * k // 2, CUDA)))
            ]
            ready, errors = {}, {}
            for name, call in contenders(count, sweep and count in (1, 16)).items():
                try:
                    reads = name.startswith("stream")
                    errors[name] = 0.0 if reads else error(sets[0], call(sets[0]))
                    assert errors[name] < BOUNDS.get(name, 5e-3), errors[name]
                    ready[name] = Captured(
                        lambda call=call, sets=sets: [call(p) for p in sets], CUDA
                    )  # type: ignore[misc]
                except Exception as e:  # noqa: BLE001 - the others are measured all the same
                    print("refused:", name, f"{type(e).__name__}: {e}"[:160], flush=True)
            loops = dict(zip(ready, in_turn(list(ready.values()), seconds, CUDA), strict=True))
            times = {
                name: {
                    s: v / len(sets) if s != "count" else v
                    for s, v in spread(loop.samples_ms).items()
                }
                for name, (loop, _) in loops.items()
            }
            for name, ms in times.items():
                moved = sets[0].moved
                if name == "cublas bf16":
                    moved = sets[0].wide.nbytes
                elif name.startswith("stream"):
                    moved = sets[0].ours.packed.nbytes
                rate = moved / ms["median"] / 1e6
                yield {
                    **where, "layer": layer, "m": count, "n": n, "k": k, "contender": name,
                    "backend": int4_backend(sets[0].x, sets[0].ours) if name == "auto" else "",
                    "us": f"{ms['median'] * 1e3:.2f}", "p95_us": f"{ms['p95'] * 1e3:.2f}",
                    "count": ms["count"], "clock_mhz": round(loops[name][1]),
                    "gb_s": f"{rate:.0f}", "of_copy": f"{rate / copied:.3f}",
                    **{
                        f"times_{peer.replace(' ', '_')}": _times(times, peer, ms["median"])
                        for peer in PEERS
                    },
                    "error": f"{errors[name]:.2e}",
                }  # fmt: skip
            shown = {name: f"{ms['median'] * 1e3:.1f}" for name, ms in times.items()}
            print(count, layer, "us", shown, f"{time.monotonic() - began:.1f} s", flush=True)
            del sets
            torch.cuda.empty_cache()


def _times(times: dict[str, dict[str, float]], peer: str, ms: float) -> str:
    """Return how many times as long a peer takes, or nothing if it took no part."""
    return f"{times[peer]['median'] / ms:.3f}" if peer in times else ""


def warm(index: int, of: int) -> None:
    """Compile every `of`-th of our kernels, so that processes side by side compile all of them."""
    calls = []
    for count in VECTORS[:5]:
        for n, k in LAYERS.values():
            cuts = {*CUTS, cut_of(n, k // GROUP, count, 132)}
            sizes = (n, k, k // GROUP, k, torch.bfloat16, torch.bfloat16)
            calls += [call_of(cut, count, *sizes) for cut in sorted(cuts)]
    unlike = {str(call.constants): call for call in calls}
    for call in list(unlike.values())[index::of]:
        compile_kernel(call, 90)


def main() -> None:
    """Measure and write int4.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.08, help="for each contender")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", default=",".join(map(str, VECTORS)), help="vectors")
    parser.add_argument("--sweep", action="store_true", help="also other cuts")
    parser.add_argument("--warm", metavar="I/N", help="only compile a share of the kernels")
    given = parser.parse_args()
    if given.warm:
        warm(*map(int, given.warm.split("/")))
        return
    found = []
    with torch.no_grad():
        for row in rows(given.seconds, tuple(map(int, given.only.split(","))), given.sweep):
            found.append(row)
            write("int4", found, given.out)


if __name__ == "__main__":
    main()
