"""Print a digest of the PTX of our kernels, to show that a change of their sources changes none.

    python -m tests.kernel_code > before; ...; python -m tests.kernel_code before

Everything is compiled for sm_90 without a GPU and without the numbers of source lines. With a file
of earlier digests the exit status says whether all are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import torch

from gpudeck.accel.attention.kernels.hopper import backward as hopper_backward
from gpudeck.accel.attention.kernels.hopper import forward as hopper_forward
from gpudeck.accel.attention.kernels.hopper import forward_fp8, latent
from gpudeck.accel.attention.kernels.portable.quantise import quantise_call
from gpudeck.accel.primitives.gemm import hopper, portable
from gpudeck.accel.primitives.gemm.operands import Operands, arrange
from gpudeck.accel.primitives.linear_attention.fused import fused
from gpudeck.accel.primitives.quantize.fp8 import emulate
from gpudeck.accel.primitives.quantize.fused import quantize_both_ways
from gpudeck.accel.runtime.call import KernelCall, compile_kernel
from tests.unit.accel.compiled import launched, problem

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
LATENT_STRIDES = (73728, 576), (172800, 576), (65536, 512)
Calls = Iterator[tuple[str, KernelCall]]


def attention() -> Calls:
    """Yield attention's kernels for Hopper and those for every GPU."""
    rules: dict[str, dict[str, Any]] = {
        "full": {}, "causal": {"right": 0},
        "all": {"right": 0, "left": 100, "softcap": 3.0, "ragged": (3, 4000, 4000)},
    }  # fmt: skip
    for name, given in rules.items():
        for dim in (64, 128, 256):
            g = problem(16, 8192, dim, **given)
            yield f"forward {dim} {name}", hopper_forward.forward_call(g, 132)
            if name != "all":
                schedule = forward_fp8.SCHEDULES[dim]
                yield f"fp8 {dim} {name}", forward_fp8.forward_call(g, 132, schedule)
            strides = (16 * 8192, 8192, 1)
            for exact in (False, True):
                calls = hopper_backward.backward_calls(
                    g, g.q.strides, g.q.strides, strides, deterministic=exact, processors=132
                )
                for part, call in calls._asdict().items():
                    if isinstance(call, KernelCall):
                        yield f"backward {dim} {name} {exact} {part}", call
    yield "pre-pass", quantise_call(problem(16, 8192, 128))
    for splits in (1, 2):
        sizes = latent.Latent(4, 128, 300, *LATENT_STRIDES, BF16, 0.04, wants_lse=True)
        yield f"latent {splits}", latent.decode_call(sizes, splits)
    from tests.unit.accel.test_compile_matrix import calls as portable_calls
    from tests.unit.accel.test_compile_matrix import geometry

    for name, more in (("causal", {"right": 0}), ("softcap", {"softcap": 3.0, "bias": BF16})):
        for part, call in portable_calls(geometry(128, **more), 90).items():
            yield f"portable {name} {part}", call
    for length in (49, 200):
        short = portable_calls(geometry(32, bias=BF16, queries=length, keys=length), 90)
        for part, call in short.items():
            yield f"portable {length} {part}", call
    few = portable_calls(geometry(64, queries=1, keys=65536, kv_heads=2), 90)
    for part, call in few.items():
        yield f"portable few {part}", call


def products() -> Calls:
    """Yield the Hopper kernel of products, and of those of experts, in all of its shapes."""
    a, b = torch.empty(4096, 2048, dtype=BF16), torch.empty(2048, 4096, dtype=BF16)
    bias = torch.empty(4096, dtype=BF16)
    posed: dict[str, Operands] = {
        "bf16": arrange(a, b, None, None, None, None, None),
        "bf16 epilogue": arrange(a, b.t().contiguous().t(), bias, "gelu", None, None, None),
    }
    for name, kinds in {"row": ("row", "row"), "block": ("tile", "block")}.items():
        left, right = (emulate(torch.zeros(512, 512), kind, FP8) for kind in kinds)
        posed[name] = arrange(
            left.values, right.t.values, None, None, BF16, (left.scales, right.t.scales), None
        )
    for name, x in posed.items():
        for shape in hopper.RATES[x.problem.scaling]:
            strides = tuple((0, 0) if s is None else s.stride() for s in (x.scale_a, x.scale_b))
            layouts = (hopper.Layout(tuple(t.shape), t.stride()) for t in (x.a, x.b))
            dtype = None if x.bias is None else x.bias.dtype
            given = (x.problem, *layouts, strides, dtype, shape)
            at = f"{name} {shape.consumers} {shape.columns}"
            yield f"product {at}", hopper.product_call(*given, False, 8)
            if x.bias is None:
                yield f"product of experts {at}", hopper.product_call(*given, True, 8)


def others() -> Calls:
    """Yield the kernels that are launched by name."""
    a, b = torch.zeros(256, 512, dtype=BF16), torch.zeros(512, 256, dtype=BF16)
    for name, x in {
        "bf16": arrange(a, b, None, "silu", None, None, None),
        "few rows": arrange(a[:16], b, None, None, None, None, None),
        "float32": arrange(a.float(), b.float(), None, None, None, None, None),
    }.items():
        yield from _of(f"triton {name}", lambda x=x: portable.portable(x))
    for granularity in ("tensor", "row", "tile", "block"):
        most = torch.zeros(1)
        scale = torch.ones(1) if granularity == "tensor" else None
        yield from _of(
            f"round {granularity}",
            lambda g=granularity, s=scale, m=most: quantize_both_ways(a, g, FP8, s, most=m),
        )
    test = importlib.import_module("tests.unit.accel.test_linear_attention")
    for kind in test.KINDS:
        given = {n: t.to(BF16) for n, t in test.drawn(kind, 1, 128, 64, 128).items()}
        for name in ("decay", "state"):
            if name in given:
                given[name] = given[name].float()

        def run(kind: str = kind, given: dict[str, torch.Tensor] = given) -> None:
            leaves = {n: t.requires_grad_() for n, t in given.items()}
            out, last = fused(test.problem(kind, leaves, None))
            torch.autograd.grad(out.float().sum() + last.sum(), list(leaves.values()))

        yield from _of(f"linear {kind}", run)


def _of(name: str, run: Callable[[], object]) -> Calls:
    yield from ((f"{name} {number}", call) for number, call in launched(run))


def digest(call: KernelCall) -> str:
    """Return a digest of the kernel's PTX without comments."""
    ptx = re.sub(r"//.*", "", compile_kernel(call, 90).asm["ptx"])
    return hashlib.sha256(ptx.encode()).hexdigest()[:24]


def main() -> int:
    """Print the digests; compare them if earlier ones are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, nargs="?", help="digests that were printed before")
    parser.add_argument("--only", default="", help="kernels whose names contain this")
    given = parser.parse_args()
    known = {}
    if given.before is not None:
        lines = given.before.read_text().splitlines()
        known = {name: code for code, _, name in (line.partition(" ") for line in lines)}
    changed = 0
    for part in (products, others, attention):
        for name, call in part():
            if given.only not in name:
                continue
            code = digest(call)
            note = "" if known.get(name, code) == code else "  CHANGED"
            changed += bool(note)
            print(f"{code} {name}{note}", flush=True)
    return min(changed, 1)


if __name__ == "__main__":
    sys.exit(main())
