"""FP8 attention on a Hopper GPU, beside cuDNN's and FlashAttention-3's.

    python -m tests.benchmarks.attention_fp8 [--warm] [--sweep] [--seconds 0.15] [--out DIR]

Every cell has 16384 tokens and heads x head size = 2048, and 32768 tokens where a sequence has as
many. Kernels alone are timed, in turns; ours also with its pre-pass, which the peers, with a scale
of 1, do without. First the kernels are checked: against their emulation in float64 on the same
quantised tensors, then their errors on FlashAttention-3's outliers, on sinks and on 131072 keys
beside the errors of the emulation. With --sweep other schedules of our kernel are timed, too;
--warm only compiles, all kernels at once.

Peers: `nvidia-cudnn-frontend` (its output is FP8), and FlashAttention-3 as the package vllm builds
it (bfloat16 output, sums promoted to float32), if they are installed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention import emulation
from gpudeck.accel.attention.backends.fa3 import find_library
from gpudeck.accel.attention.inputs import Inputs, problem_of, rules_of
from gpudeck.accel.attention.kernels.geometry import Geometry, geometry_key, geometry_of
from gpudeck.accel.attention.kernels.hopper import forward_fp8
from gpudeck.accel.attention.kernels.hopper.forward_fp8 import SCHEDULES, Schedule, forward_call
from gpudeck.accel.attention.kernels.portable.quantise import quantise, quantise_call
from gpudeck.accel.attention.kernels.quantised import Quantised
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime import power
from gpudeck.accel.runtime.call import compile_kernel
from gpudeck.accel.runtime.launch import prepare
from gpudeck.accel.runtime.timing import measure_in_turn
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.rows import RESULTS, context, installed, spread, write

PACKAGES = ("torch", "triton", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "vllm")
E4M3, BF16 = torch.float8_e4m3fn, torch.bfloat16
LENGTHS = (2048, 8192, 16384, 32768)
HEAD_SIZES = (128, 256, 64)
CUDA = torch.device("cuda", 0)
SWEEP: dict[int, tuple[dict[str, Any], ...]] = {
    64: ({"polynomials": 1},),
    128: ({"polynomials": 0}, {"pinned": True}),
    256: ({"segment": 2048},),
}
"""What else is measured of a schedule, by head size; the LOG has what was tried before."""


def tensors(
    batch: int, heads: int, kv_heads: int, seq_q: int, seq_k: int, dim: int
) -> list[Tensor]:
    """Return normal q, k and v, which lie in memory as [B,S,H,D]."""
    sizes = ((heads, seq_q), (kv_heads, seq_k), (kv_heads, seq_k))
    return [
        torch.randn(batch, seq, h, dim, device="cuda").to(BF16).transpose(1, 2) for h, seq in sizes
    ]


def problem(x: Inputs, **rules: Any) -> Any:
    return problem_of(x, rules_of(x.q, **rules))


def own(x: Inputs, **rules: Any) -> tuple[Tensor, Tensor, Quantised]:
    """Run the pre-pass and the kernel; poison what they do not write."""
    p = problem(x, **rules)
    made, claims = quantise(x.q, x.k, x.v, x.ragged)
    out, lse = forward_fp8.forward(made, claims, x.q, x.k, x.v, p.rules, x.ragged)
    return out, lse, made


def error(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


CHECKS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 4, 2, 1000, 1000), {}),
    ((2, 4, 2, 1000, 1000), {"causal": True}),
    ((1, 4, 4, 333, 2222), {"causal": True}),
    ((1, 4, 1, 700, 700), {"window": (100, 50)}),
    ((1, 2, 2, 700, 700), {"causal": True, "softcap": 20.0}),
    ((1, 2, 2, 200, 64), {"causal": True}),
    ((3, 16, 8, 4096, 4096), {"causal": True}),
)


def check() -> Iterator[str]:
    """Yield a line for each shape that is wrong, and one at the end."""
    count, worst = 0, 0.0
    for dim, (sizes, rules) in product((*HEAD_SIZES, 80), CHECKS):
        x = Inputs(*tensors(*sizes, dim))
        out, lse, made = own(x, **rules)
        exact, exact_lse = emulation.attend(made, problem(x, **rules), torch.float64)
        exact = exact[..., :dim]
        seen = exact_lse > -math.inf
        apart = error(out, exact)
        lse_apart = float((lse.double() - exact_lse)[seen].abs().max())
        count, worst = count + 1, max(worst, apart)
        # Weights at the edge of two numbers of E4M3 may fall to either side.
        if not (apart < 8e-3 and lse_apart < 5e-3 and torch.equal(lse > -math.inf, seen)):
            yield f"WRONG d={dim} {sizes} {rules}: out {apart:.1e}, lse {lse_apart:.1e}"
    for dim, lengths in product(HEAD_SIZES, ([700, 1, 0, 300, 129], [128, 256, 64])):
        ragged = Ragged.of(lengths, lengths, device="cuda")
        x = Inputs(*tensors(1, 4, 2, sum(lengths), sum(lengths), dim), ragged=ragged)
        out, lse, _ = own(x, causal=True)
        exact, exact_lse = emulation.forward(x, problem(x, causal=True), torch.float64)
        apart = error(out, exact)
        lse_apart = float((lse - exact_lse).abs().max())
        count, worst = count + 1, max(worst, apart)
        if not (apart < 8e-3 and lse_apart < 5e-3):
            yield f"WRONG ragged d={dim} {lengths}: out {apart:.1e}, lse {lse_apart:.1e}"
    yield f"{count} shapes checked against the emulation; furthest {worst:.1e}"


MEANS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0)
"""The means of values, in their deviations. What tensor cores lose grows with the sums."""


def outliers(*sizes: int) -> Tensor:
    rare = torch.rand(sizes, device="cuda") < 0.001
    return (torch.randn(sizes, device="cuda") + 10 * rare * torch.randn(sizes, device="cuda")).to(
        BF16
    )


def exact(x: Inputs) -> Tensor:
    """Return the answer in float64, a head at a time."""
    heads = []
    for h in range(x.q.shape[1]):
        q, k, v = (t[:, h].double() for t in x[:3])  # type: ignore[union-attr]
        heads.append(((q @ k.mT) / math.sqrt(q.shape[-1])).softmax(-1) @ v)
    return torch.stack(heads, 1)


def errors(wanted: str) -> Iterator[dict[str, object]]:
    """Yield RMSE and relative error of the kernel and of its emulation in float64."""
    cases: dict[str, Inputs] = {}
    for dim in HEAD_SIZES:
        cases[f"outliers, 8 heads, 8192, d={dim}"] = Inputs(
            *(outliers(1, 8, 8192, dim) for _ in range(3))
        )
        q, k, v = tensors(1, 4, 4, 2048, 8192, dim)
        q, k = q.clone() + 1, k.clone()
        k[:, :, 0] += 8 * math.log(8192) / math.sqrt(dim)  # the first key draws most weight
        v = v.clone()
        v[:, :, 0] *= 0.01
        cases[f"a sink, 8192, d={dim}"] = Inputs(q, k, v)
        cases[f"131072 keys, d={dim}"] = Inputs(*tensors(1, 2, 2, 128, 131072, dim))
        q, k, v = tensors(1, 2, 2, 128, 131072, dim)
        cases[f"131072 keys, values of one sign, d={dim}"] = Inputs(q, k, (v + 1).contiguous())
        for mean in MEANS:
            q, k, v = tensors(1, 2, 2, 2048, 8192, dim)
            cases[f"values around {mean:g}, 8192, d={dim}"] = Inputs(q, k, (v + mean).contiguous())
    for name, x in cases.items():
        if wanted not in name:
            continue
        truth = exact(x)
        out, _, made = own(x)
        emulated = emulation.attend(made, problem(x), torch.float64)[0][..., : x.q.shape[3]]
        rmse = [(t.double() - truth).square().mean().sqrt().item() for t in (out, emulated)]
        yield {
            "case": name, "rmse": f"{rmse[0]:.3e}", "emulated_rmse": f"{rmse[1]:.3e}",
            "relative": f"{error(out, truth):.3e}",
            "emulated_relative": f"{error(emulated, truth):.3e}",
        }  # fmt: skip


def flops(batch: int, heads: int, seq: int, dim: int, causal: bool) -> float:
    return 4.0 * batch * heads * seq * seq * dim / (2 if causal else 1)


def meta(batch: int, heads: int, seq: int, dim: int, causal: bool) -> Geometry:
    q = torch.empty(batch, seq, heads, dim, dtype=BF16, device="meta").transpose(1, 2)
    rules = Rules(right=0 if causal else None, scale=dim**-0.5)
    return geometry_of(geometry_key(*[Shape(q)] * 3, rules))  # type: ignore[list-item]


class Shape:
    """A tensor's sizes and strides, with an aligned address."""

    def __init__(self, like: Tensor) -> None:
        self.shape, self.dtype, self.device = like.shape, like.dtype, torch.device("cuda", 0)
        self._strides = like.stride()

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return 0


def schedules(dim: int, sweep: bool) -> dict[str, Schedule]:
    main = {"ours": SCHEDULES[dim]}
    if sweep:
        for changes in SWEEP[dim]:
            name = ",".join(f"{k}={v}" for k, v in changes.items())
            main[f"ours {name}"] = replace(SCHEDULES[dim], **changes)
    return main


def shapes(lengths: tuple[int, ...]) -> Iterator[tuple[int, int, int, int, bool]]:
    for dim, seq, causal in product(HEAD_SIZES, lengths, (False, True)):
        yield max(1, 16384 // seq), 2048 // dim, seq, dim, causal


def build(work: tuple[tuple[int, int, int, int, bool], Schedule | None]) -> None:
    shape, schedule = work
    g = meta(*shape)
    compile_kernel(quantise_call(g) if schedule is None else forward_call(g, 132, schedule), 90)


def build_all(lengths: tuple[int, ...], sweep: bool) -> None:
    """Compile every kernel in processes of their own, into Triton's cache."""
    work: list[Any] = []
    for shape in shapes(lengths):
        if shape[3] < 256 and shape[2] != lengths[-1]:
            continue  # the same kernels
        work += [(shape, s) for s in (None, *schedules(shape[3], sweep).values())]
    with multiprocessing.get_context("spawn").Pool(14) as pool:
        pool.map(build, list(dict.fromkeys(work)), chunksize=1)


def cudnn_call(x: Inputs, causal: bool, layout: str) -> Callable[[], object]:
    import cudnn

    q, k, v = (t.to(E4M3) for t in x[:3])  # type: ignore[union-attr]
    if layout == "bhsd":
        q, k, v = (t.contiguous() for t in (q, k, v))
    out = torch.empty_like(q)
    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.FP8_E4M3,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
    )
    given: dict[Any, Tensor] = {}

    def take(t: Tensor, kind: Any) -> Any:
        made = graph.tensor(dim=list(t.shape), stride=list(t.stride()), data_type=kind)
        given[made] = t
        return made

    boxes = [take(t, cudnn.data_type.FP8_E4M3) for t in (q, k, v)]
    ones = [take(torch.ones(1, 1, 1, 1, device="cuda"), cudnn.data_type.FLOAT) for _ in range(6)]
    names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    o, _, amax_s, amax_o = graph.sdpa_fp8(
        q=boxes[0], k=boxes[1], v=boxes[2], **dict(zip(names, ones, strict=True)),
        is_inference=True, attn_scale=q.shape[3] ** -0.5, use_causal_mask=causal, name="sdpa",
    )  # fmt: skip
    o.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride())).set_data_type(
        cudnn.data_type.FP8_E4M3
    )
    given[o] = out
    for amax in (amax_s, amax_o):
        amax.set_output(True).set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1]).set_data_type(
            cudnn.data_type.FLOAT
        )
        given[amax] = torch.zeros(1, 1, 1, 1, device="cuda")
    graph.build([cudnn.heur_mode.A])
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    call = partial(graph.execute, given, workspace, handle=handle)
    call()
    checked(out, q, k, v, causal)
    return call


def fa3_call(x: Inputs, causal: bool) -> Callable[[], object]:
    q, k, v = (t.transpose(1, 2).flatten(0, 1).to(E4M3) for t in x[:3])  # type: ignore[union-attr]
    batch, heads, seq, dim = x.q.shape
    starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * seq
    ones = torch.ones(batch, heads, device="cuda")
    none = None
    out = torch.empty(q.shape, dtype=BF16, device="cuda")

    def call() -> Tensor:
        made: Tensor = torch.ops._vllm_fa3_C.fwd(
            q, k, v, none, none, none, out, starts, starts, none, none, none, seq, seq, none, none,
            none, none, none, none, ones, ones, ones, dim**-0.5, causal, -1, -1, 0.0, True, none, 0,
            none, 0, none, 1, 0, none,
        )[0]  # fmt: skip
        return made

    made = call().unflatten(0, (batch, seq)).transpose(1, 2)
    checked(made, *(t.unflatten(0, (batch, seq)).transpose(1, 2) for t in (q, k, v)), causal)
    return call


def checked(out: Tensor, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> None:
    """Raise ValueError unless the first head of a peer is right, as far as FP8 is."""
    length = min(2048, q.shape[2])
    if not causal and q.shape[2] > length:
        length = q.shape[2]
    parts = [t[:1, :1, :length].float() for t in (q, k, v)]
    with torch.nn.attention.sdpa_kernel(
        torch.nn.attention.SDPBackend.MATH
        if length <= 2048
        else torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION
    ):
        truth = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal)  # type: ignore[arg-type]
    if not error(out[:1, :1, :length].float(), truth) < 0.1:
        raise ValueError(f"wrong: {error(out[:1, :1, :length].float(), truth):.2g}")


def own_calls(x: Inputs, causal: bool, sweep: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    rules = Rules(right=0 if causal else None, scale=x.q.shape[3] ** -0.5)
    g = geometry_of(geometry_key(*x[:3], rules))
    made, claims = quantise(*x[:3])
    out, lse = torch.empty_like(x.q), torch.empty(x.q.shape[:3], device="cuda")
    first: Tensor | None = None
    for name, schedule in schedules(x.q.shape[3], sweep).items():
        call = forward_call(g, torch.cuda.get_device_properties(0).multi_processor_count, schedule)
        launch = prepare(call, x.q.device)
        counts = bool(call.constants["COUNT"])
        size = forward_fp8.workspace_size(call)
        kept = [torch.empty(size, device="cuda")] if size else []

        def run(launch: Any = launch, counts: bool = counts, kept: list[Tensor] = kept) -> None:
            if counts:
                claims.zero_()
            launch(*made[:3], out, lse, claims, *kept, *made[3:])

        out.fill_(math.nan)
        run()
        if first is None:
            first = out.clone()
        elif not error(out, first) < 2e-2:
            raise ValueError(f"{name} differs by {error(out, first):.2g}")
        yield name, run

    def whole() -> object:
        return forward_fp8.forward(*quantise(*x[:3]), *x[:3], rules)

    yield "ours with pre-pass", whole


def contenders(x: Inputs, causal: bool, sweep: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    yield from own_calls(x, causal, sweep)
    ways: dict[str, Callable[[], Callable[[], object]]] = {
        "cudnn": partial(cudnn_call, x, causal, "bshd"),
        "cudnn bhsd": partial(cudnn_call, x, causal, "bhsd"),
    }
    if find_library():
        ways["fa3"] = partial(fa3_call, x, causal)
    for name, make in ways.items():
        try:
            yield name, make()
        except Exception as e:  # noqa: BLE001 - a peer that cannot is named, and left out
            print(f"{name}: {type(e).__name__}: {str(e)[:300]}", flush=True)


def measure(
    shape: tuple[int, int, int, int, bool], seconds: float, sweep: bool
) -> Iterator[dict[str, object]]:
    batch, heads, seq, dim, causal = shape
    x = Inputs(*tensors(batch, heads, heads, seq, seq, dim))
    named = dict(contenders(x, causal, sweep))
    for _ in range(2):
        for call in named.values():
            call()
    torch.cuda.synchronize()
    calls = list(named.values())
    readings: list[list[power.SensorReading]] = [[] for _ in calls]
    found = measure_in_turn(
        calls, seconds, CUDA, lambda *_: None, lambda i: readings[i].append(power.read(CUDA))
    )
    for name, measured, sensed in zip(named, found, readings, strict=True):
        clock = power.in_turn(sensed, CUDA)
        took = spread(measured.samples_ms)
        rate = flops(batch, heads, seq, dim, causal) / took["median"] / 1e9
        yield {
            "head_dim": dim, "causal": causal, "seq": seq, "batch": batch, "heads": heads,
            "contender": name, "tflops": f"{rate:.1f}", "sm_mhz": f"{clock.sm_mhz or 0:.0f}",
            "celsius": f"{clock.celsius or 0:.0f}",
            **{f"{key}_ms" if key != "count" else key: value for key, value in took.items()},
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--unchecked", action="store_true", help="do not check the kernels first")
    parser.add_argument("--errors", default="", help="only the cases whose names have this")
    parser.add_argument("--warm", action="store_true", help="only compile the kernels")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lengths = tuple(map(int, options.lengths.split(",")))
    start = time.perf_counter()
    torch.manual_seed(0)
    if options.warm:
        build_all(lengths, options.sweep)
        print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
        return
    if not options.unchecked:
        print(*check(), sep="\n", flush=True)
    where = context(torch.cuda.get_device_name(0), installed(PACKAGES), SOURCES["attention_fp8"])
    lost = [{**where, **row} for row in errors(options.errors)]
    for row in lost:
        print(*list(row.values())[len(where) :], flush=True)
    if lost:
        write("attention_fp8_errors", lost, options.out)
    print(f"checked after {time.perf_counter() - start:.0f} s", flush=True)
    if find_library():
        torch.ops.load_library(find_library())  # type: ignore[no-untyped-call]
    rows: list[dict[str, object]] = []
    for shape in shapes(lengths):
        new = list(measure(shape, options.seconds, options.sweep))
        rows += [{**where, **row} for row in new]
        write("attention_fp8", rows, options.out)
        print(f"d{shape[3]} S{shape[2]} {'causal' if shape[4] else 'full'}:",
              ", ".join(f"{r['contender']} {r['tflops']}" for r in new), flush=True)  # fmt: skip
    print(f"done after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
