"""Measure attention of a few queries over long keys beside other implementations.

python -m tests.benchmarks.attention_decoding [--warm I/N] [--only NAME] [--tiles] [--out FOLDER]

Each implementation is captured as a CUDA graph, in the layout that it reads fastest. Keys and
values are random, several copies of them in turn if they are smaller than four times the L2 cache;
the graphs of a shape take turns. Answers are compared with float64. `--warm` only compiles, a part
of the shapes, so that several processes do it at once; `--tiles` measures our tiles. Rows go to
attention_decoding.csv: GB/s are of the keys and values that are seen, of queries and of outputs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from gpudeck.accel.attention.backends.fa3 import find_library
from gpudeck.accel.attention.kernels.decoding import plan
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.runtime import power
from gpudeck.accel.runtime.graphs import record
from gpudeck.accel.runtime.peaks import peak_bandwidth
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.rows import RESULTS, context, installed, write

PAGE, FA3_PAGE, MLA_PAGE = 16, 128, 64
PACKAGES = ("torch", "triton", "nvidia-cudnn-cu13", "vllm")
L2_TIMES = 4
MOST_ERROR = 0.1
"""An answer that is wrong is not the best."""
Call = Callable[["Data"], Tensor]


@dataclass(frozen=True)
class Cell:
    """Describe a decoding step of a published model."""

    name: str
    heads: int
    kv_heads: int
    size: int
    batch: int
    keys: int
    queries: int = 1
    window: int = 0
    """Keys that a query sees, its own included; 0: all."""
    softcap: float = 0.0
    cache: str = "bf16"
    values: int = 0
    """The head size of the values if they are a part of the keys (MLA)."""
    ragged: bool = False
    """Lengths from a sixteenth to all of `keys`, evenly."""

    @property
    def lengths(self) -> list[int]:
        if not self.ragged:
            return [self.keys] * self.batch
        return [self.keys * (1 + 15 * i // max(1, self.batch - 1)) // 16 for i in range(self.batch)]

    @property
    def bytes(self) -> int:
        """Count what has to be read and written."""
        width = 1 if self.cache != "bf16" else 2
        seen = sum(
            min(n, self.window + self.queries - 1) if self.window else n for n in self.lengths
        )
        vector = self.size if self.values else 2 * self.size
        scales = 8 if self.cache != "bf16" else 0
        rows = self.batch * self.queries * self.heads
        return seen * self.kv_heads * (vector * width + scales) + 4 * rows * self.size


SHAPES = (
    Cell("Llama 3 8B", 32, 8, 128, 1, 8192),
    Cell("Llama 3 8B", 32, 8, 128, 1, 131072),
    Cell("Llama 3 8B", 32, 8, 128, 16, 4096),
    Cell("Llama 3 8B", 32, 8, 128, 64, 8192),
    Cell("Llama 3 8B", 32, 8, 128, 128, 1024),
    Cell("Llama 3 8B, 4 queries", 32, 8, 128, 8, 16384, queries=4),
    Cell("Llama 3 70B", 64, 8, 128, 1, 32768),
    Cell("Llama 3 70B", 64, 8, 128, 32, 8192),
    Cell("Qwen 2.5 0.5B", 14, 2, 64, 64, 4096),
    Cell("Qwen 2.5 7B", 28, 4, 128, 8, 32768),
    Cell("Qwen 3 30B A3B", 32, 4, 128, 32, 16384),
    Cell("Mistral 7B, window 4096", 32, 8, 128, 16, 32768, window=4096),
    Cell("Gemma 2 9B, window 4096, softcap", 16, 8, 256, 8, 8192, window=4096, softcap=50.0),
    Cell("Gemma 3 12B", 16, 8, 256, 4, 32768),
    Cell("Gemma 3 12B, window 1024", 16, 8, 256, 16, 16384, window=1024),
    Cell("Phi-2", 32, 32, 80, 4, 2048),
    Cell("Phi-3 mini", 32, 32, 96, 8, 4096),
    Cell("Phi-4", 40, 10, 128, 16, 16384),
    Cell("DeepSeek V3, MLA", 128, 1, 576, 32, 4096, values=512),
    Cell("DeepSeek V2 Lite, MLA", 16, 1, 576, 64, 8192, values=512),
)
FLEX = (SHAPES[2], SHAPES[3], SHAPES[5])
"""Shapes for which FlexAttention is compiled, which takes long."""
MORE = (
    Cell("Llama 3 8B, lengths 1 to 16k", 32, 8, 128, 64, 16384, ragged=True),
    Cell("Llama 3 8B, FP8", 32, 8, 128, 64, 16384, cache="fp8"),
    Cell("Llama 3 8B, FP8", 32, 8, 128, 1, 131072, cache="fp8"),
    Cell("Llama 3 8B, int8", 32, 8, 128, 64, 16384, cache="int8"),
    Cell("Gemma 3 12B, FP8", 16, 8, 256, 8, 32768, cache="fp8"),
)
TILES: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "small False False": ((128, 4, 3, 1), (64, 4, 4, 2), (128, 4, 4, 1), (64, 2, 4, 2)),
    "narrow False False": ((64, 4, 4, 2), (128, 4, 3, 1), (64, 4, 3, 2), (64, 2, 3, 2)),
    "wide False False": ((64, 4, 3, 2), (64, 8, 3, 2), (32, 4, 4, 2)),
    "latent False False": ((32, 4, 2, 2), (64, 8, 2, 2), (64, 8, 1, 2)),
    "small True False": ((128, 4, 5, 1), (64, 4, 5, 2), (64, 2, 5, 2)),
    "narrow True False": ((64, 4, 5, 2), (64, 2, 3, 2), (64, 2, 5, 2), (128, 8, 5, 1),
                          (64, 4, 3, 2)),
    "wide True False": ((32, 4, 5, 2), (64, 8, 5, 2), (32, 4, 3, 2), (32, 4, 7, 2)),
    "latent True False": ((64, 8, 2, 2), (32, 4, 5, 2), (32, 8, 5, 2), (32, 4, 3, 2)),
    "narrow True True": ((64, 4, 5, 2), (128, 4, 3, 1), (64, 4, 7, 2), (128, 4, 5, 1),
                         (64, 2, 5, 2)),
    "wide True True": ((32, 4, 5, 2), (64, 4, 3, 2), (64, 4, 5, 2), (64, 8, 5, 2)),
}  # fmt: skip
"""Tiles that are tried, by class of problems."""


@dataclass
class Data:
    """Hold the tensors of one copy of a cell, contiguous and in pages."""

    q: Tensor
    k: Tensor
    v: Tensor
    """[B, Hkv, S, D], in memory as [B, S, Hkv, D]."""
    pages: Tensor
    """[2, pages, PAGE, Hkv, D]; MLA: [1, ...]."""
    scales: Tensor | None
    table: Tensor
    lengths: Tensor

    @property
    def paged(self) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        k, v = self.pages[0].transpose(1, 2), self.pages[-1].transpose(1, 2)
        scales = None if self.scales is None else tuple(self.scales.transpose(2, 3))
        return k, v[..., : self.v.shape[3]], scales


def data(cell: Cell, seed: int, device: str = "cuda") -> Data:
    """Draw the tensors of a cell."""
    torch.manual_seed(seed)
    options: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    c, both = cell, 1 if cell.values else 2
    count = c.batch * c.keys // PAGE
    drawn = torch.randn(both, count * PAGE, c.kv_heads, c.size, **options)
    scales, kept = None, drawn
    if c.cache != "bf16":
        most, to = (448.0, torch.float8_e4m3fn) if c.cache == "fp8" else (127.0, torch.int8)
        scales = drawn.abs().amax(3).float() / most
        scaled = drawn.float() / scales.unsqueeze(3)
        kept = (scaled.round() if to == torch.int8 else scaled).to(to)
        drawn = (kept.float() * scales.unsqueeze(3)).to(torch.bfloat16)
    # The pages lie anywhere.
    order = torch.randperm(count, device=device)
    back = torch.empty_like(order)
    back[order] = torch.arange(count, device=device)

    def scattered(x: Tensor) -> Tensor:
        return x.view(torch.uint8 if x.dtype.itemsize == 1 else x.dtype).view(
            both, count, PAGE, *x.shape[2:]
        )[:, order].view(x.dtype)  # fmt: skip

    plain = drawn.view(both, c.batch, c.keys, c.kv_heads, c.size).transpose(2, 3)
    return Data(
        torch.randn(c.batch, c.queries, c.heads, c.size, **options).transpose(1, 2),
        plain[0], plain[-1][..., : c.values or c.size], scattered(kept),
        None if scales is None else scattered(scales),
        back.int().view(c.batch, -1), torch.tensor(c.lengths, device=device, dtype=torch.int32),
    )  # fmt: skip


def ours(cell: Cell, tile: plan.Tile | None = None) -> dict[str, Call]:
    rules = Rules(
        cell.window - 1 if cell.window else None, 0 if cell.queries > 1 else None,
        cell.size**-0.5, cell.softcap,
    )  # fmt: skip

    def paged(d: Data) -> Tensor:
        k, v, scales = d.paged
        return plan.attend(
            d.q, k, v, rules, scales=scales, tables=d.table, lengths=d.lengths, tile=tile
        )[0]  # fmt: skip

    found: dict[str, Call] = {"ours, pages of 16": paged}
    if cell.cache == "bf16" and not cell.ragged:
        found["ours"] = lambda d: plan.attend(d.q, d.k, d.v, rules, tile=tile)[0]
    return found


def fa3(cell: Cell) -> dict[str, Call]:
    """FlashAttention-3: a batch and pages of 128 with its scheduler's metadata; end to end."""
    if find_library() is None or cell.cache == "int8":
        return {}
    torch.ops.load_library(find_library())
    ops, c, none = torch.ops._vllm_fa3_C, cell, None
    kept = torch.float8_e4m3fn if c.cache == "fp8" else torch.bfloat16
    window = (-1, -1) if not c.window else (c.window - 1, 0)
    causal = c.queries > 1 or bool(c.window)
    starts = torch.arange(c.batch + 1, device="cuda", dtype=torch.int32) * c.queries
    lengths = torch.tensor(c.lengths, device="cuda", dtype=torch.int32)
    size = 64 if c.values else c.size
    one = torch.ones(c.batch, c.kv_heads, device="cuda") if c.cache == "fp8" else none
    pages = torch.arange(c.batch * c.keys // FA3_PAGE, device="cuda", dtype=torch.int32)

    def metadata(page: int | None) -> Tensor:
        return ops.get_scheduler_metadata(
            c.batch, c.queries, c.keys, c.heads, c.kv_heads, size, c.values or c.size, kept,
            lengths, starts, none, none, none, none, page, 0, causal, *window, c.softcap > 0, 0,
            none, 0,
        )  # fmt: skip

    known = {page: metadata(page) for page in (FA3_PAGE, none)}
    starts_k = torch.arange(c.batch + 1, device="cuda", dtype=torch.int32) * c.keys

    ready: dict[tuple[int, str], tuple[Tensor, Tensor, Tensor, Tensor | None]] = {}

    def arranged(d: Data, way: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v = (x.transpose(1, 2) for x in (d.q, d.k, d.v))
        q_v = none
        if c.values:
            q, q_v = q[..., c.values :].contiguous(), q[..., : c.values].contiguous()
            k = k[..., c.values :]
        if way != "batch":
            q = q.flatten(0, 1)
        if way == "row":
            k, v = k.flatten(0, 1), v.flatten(0, 1)
        if way == "pages":
            k, v = (x.reshape(-1, FA3_PAGE, c.kv_heads, x.shape[3]) for x in (k, v))
        return q.to(kept), k.to(kept), v.to(kept), q_v

    def call(d: Data, way: str) -> Tensor:
        if (id(d), way) not in ready:  # not in the graph, before which the call is made thrice
            ready[id(d), way] = arranged(d, way)
        q, k, v, q_v = ready[id(d), way]
        row = way == "row"
        planned = none if row else known[FA3_PAGE if way == "pages" else none]
        return ops.fwd(
            q, k, v, none, none, q_v, none, none if way == "batch" else starts,
            starts_k if row else none, none, none, none if row else lengths, c.queries, c.keys,
            pages.view(c.batch, -1) if way == "pages" else none, none, none, none, none, none,
            one, one, one,
            c.size**-0.5, causal, *window, c.softcap, True, planned, 0, none, 0, none, 1, 0, none,
        )[0].view(c.batch, c.queries, c.heads, -1).transpose(1, 2)  # fmt: skip

    ways = ["batch"]
    if c.cache == "bf16" and not c.values:
        ways += ["pages"] if c.ragged else ["pages", "row"]
    return {f"fa3 ({way})": lambda d, way=way: call(d, way) for way in ways}  # type: ignore[misc]


def flash_mla(cell: Cell) -> dict[str, Call]:
    """FlashMLA, as vllm builds it: keys of 576 whose first 512 are the values, pages of 64."""
    beside = find_library()
    library = Path(beside).parents[1] / "_flashmla_C.abi3.so" if beside else None
    if library is None or not library.is_file() or not cell.values or cell.cache != "bf16":
        return {}
    torch.ops.load_library(str(library))
    c, fwd = cell, torch.ops._flashmla_C.dense_decode_fwd
    pages = torch.arange(c.batch * c.keys // MLA_PAGE, device="cuda", dtype=torch.int32)
    lengths = torch.tensor(c.lengths, device="cuda", dtype=torch.int32)
    plans: dict[int, tuple[Tensor | None, Tensor | None]] = {}

    def call(d: Data) -> Tensor:
        keys = d.k.transpose(1, 2).view(-1, MLA_PAGE, c.kv_heads, c.size)
        known = plans.get(0, (None, None))  # its plan depends on the lengths alone
        out, _, *plans[0] = fwd(
            d.q.transpose(1, 2), keys, c.values, lengths, pages.view(c.batch, -1), c.size**-0.5,
            False, *known, None,
        )  # fmt: skip
        return out.transpose(1, 2)

    return {"flashmla": call}


def torchs(cell: Cell) -> dict[str, Call]:
    """PyTorch's kernels; heads that share keys are the rows of one."""
    c = cell
    if c.softcap or c.ragged or c.cache != "bf16":
        return {}

    def call(d: Data, backend: SDPBackend) -> Tensor:
        first = c.keys - (c.window + c.queries - 1) if c.window else 0
        k, v = d.k[:, :, first:], d.v[:, :, first:]
        with sdpa_kernel(backend):
            if c.queries > 1:
                from torch.nn.attention.bias import causal_lower_right

                return sdpa(d.q, k, v, causal_lower_right(c.queries, c.keys), enable_gqa=True)
            q = d.q.view(c.batch, c.kv_heads, c.heads // c.kv_heads, c.size)
            return sdpa(q, k, v, scale=c.size**-0.5).reshape(c.batch, c.heads, 1, -1)

    kinds = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    return {
        kind.name.split("_")[0].lower(): lambda d, kind=kind: call(d, kind)  # type: ignore[misc]
        for kind in kinds
    }


def flex(cell: Cell) -> dict[str, Call]:
    """FlexAttention, compiled; it has a kernel of its own for few queries."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    c = cell
    if cell not in FLEX:
        return {}
    torch._dynamo.config.recompile_limit = 64
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None
    if c.queries > 1:
        shift = c.keys - c.queries
        mask = create_block_mask(
            lambda b, h, q, k: q + shift >= k, None, None, c.queries, c.keys, device="cuda"
        )
    return {
        "flex": lambda d: compiled(d.q, d.k, d.v, block_mask=mask, enable_gqa=c.heads != c.kv_heads)
    }


def wanted(cell: Cell, d: Data, sequence: int) -> Tensor:
    """Return the answer of one sequence in float64, [H, Sq, D]."""
    n = cell.lengths[sequence]
    group = cell.heads // cell.kv_heads
    q = d.q[sequence].double().view(cell.kv_heads, group, cell.queries, cell.size)
    at = torch.arange(n, device="cuda")
    place = torch.arange(cell.queries, device="cuda")[:, None] + n - cell.queries
    seen = at <= place
    if cell.window:
        seen &= at > place - cell.window
    found = []
    for head in range(cell.kv_heads):
        scores = q[head] @ d.k[sequence, head, :n].double().T * cell.size**-0.5
        if cell.softcap:
            scores = cell.softcap * torch.tanh(scores / cell.softcap)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        found.append(weights @ d.v[sequence, head, :n].double())
    return torch.cat(found)


def error(cell: Cell, d: Data, out: Tensor) -> float:
    """Return the largest relative error of the first and the last sequence."""
    found = []
    for sequence in {0, cell.batch - 1}:
        right = wanted(cell, d, sequence)
        found.append(float((out[sequence].double() - right).norm() / right.norm()))
    return max(found)


class Graph:
    """Hold a captured implementation: all copies, one after the other."""

    def __init__(self, call: Call, copies: list[Data]) -> None:
        self.count = len(copies)
        repeats = max(1, 8 // self.count)
        self.count *= repeats
        self._copies = copies  # their memory is read by the graph
        self.graph, self.results = record(
            lambda: [call(d) for _ in range(repeats) for d in copies], copies[0].q.device
        )

    def launch(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        return begin, end


def sm_mhz() -> float:
    """Return the clock of the multiprocessors now."""
    return power.read(torch.device("cuda", 0))[0] or 0.0


def measured(cell: Cell, calls: dict[str, Call], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the median microseconds of a call, their spread, and its error, of each that works."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    copies = [data(cell, seed) for seed in range(max(1, -(-L2_TIMES * l2 // cell.bytes)))]
    graphs: dict[str, Graph] = {}
    for name, call in calls.items():
        try:
            graphs[name] = Graph(call, copies)
        except Exception as e:  # noqa: BLE001 - a peer that refuses is a row of its own
            print(f"  {name}: {str(e).strip().splitlines()[0][:150]}", flush=True)
            torch.cuda.synchronize()
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    clocks: list[float] = []
    until = time.monotonic() + seconds * max(1, len(graphs))
    order = list(graphs)
    while time.monotonic() < until or len(samples[order[0]]) < 5:
        pairs = {name: graphs[name].launch() for name in order}
        clocks.append(sm_mhz())  # while they run
        torch.cuda.synchronize()
        for name, (begin, end) in pairs.items():
            samples[name].append(begin.elapsed_time(end) * 1e3 / graphs[name].count)
        order = order[1:] + order[:1]
    for name, graph in graphs.items():
        for out in graph.results:
            out.fill_(torch.nan)
        graph.graph.replay()
        found = sorted(samples[name][1:])
        yield {
            "implementation": name, "microseconds": f"{statistics.median(found):.5g}",
            "low": f"{found[len(found) // 20]:.5g}", "high": f"{found[-1 - len(found) // 20]:.5g}",
            "sm_mhz": f"{statistics.median(clocks):.0f}",
            "error": f"{error(cell, copies[-1], graph.results[-1]):.3g}",
        }  # fmt: skip


def rates() -> tuple[float, float]:
    """Return the bytes a second of a copy, read and written ones counted, and of the data sheet."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    found = []
    for _ in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        found.append(2 * source.nbytes / begin.elapsed_time(end) * 1e3)
    return statistics.median(found[2:]), peak_bandwidth(torch.cuda.get_device_name()) or 0.0


def table(cells: tuple[Cell, ...], seconds: float, out: Path, with_flex: bool) -> None:
    """Measure all cells, and write the file after each."""
    copy, sheet = rates()
    print(f"a copy: {copy / 1e9:.0f} GB/s; data sheet {sheet / 1e9:.0f}", flush=True)
    known = context(
        torch.cuda.get_device_name(), installed(PACKAGES), SOURCES["attention_decoding"]
    )
    rows: list[dict[str, Any]] = []
    for cell in cells:
        calls = ours(cell)
        for peer in (fa3, flash_mla, torchs, *((flex,) if with_flex else ())):
            try:
                calls |= peer(cell)
            except Exception as e:  # noqa: BLE001 - the other peers are worth having
                print(f"  {peer.__name__}: {str(e).strip().splitlines()[0][:150]}", flush=True)
        try:
            found = list(measured(cell, calls, seconds))
        except Exception:  # noqa: BLE001 - the other cells are worth having
            traceback.print_exc()
            continue
        best = {True: math.nan, False: math.nan}
        for row in found:
            mine, us = row["implementation"].startswith("ours"), float(row["microseconds"])
            if float(row["error"]) < MOST_ERROR and not us >= best[mine]:
                best[mine] = us
        for row in found:
            rate = cell.bytes / float(row["microseconds"]) * 1e6
            rows.append({
                "model": cell.name, "heads": cell.heads, "kv_heads": cell.kv_heads,
                "head_dim": cell.size, "batch": cell.batch, "keys": cell.keys,
                "queries": cell.queries, "window": cell.window, "softcap": cell.softcap,
                "cache": cell.cache, "megabytes": round(cell.bytes / 1e6, 1), **row,
                "gbs": f"{rate / 1e9:.4g}", "of_copy": f"{rate / copy:.3f}",
                "of_sheet": f"{rate / sheet:.3f}" if sheet else "",
                "speed_beside_best_peer": f"{best[False] / best[True]:.3f}", **known,
            })  # fmt: skip
        write("attention_decoding", rows, out)
        shown = ", ".join(
            f"{r['implementation']} {r['microseconds']} ({r['error']})" for r in found
        )
        share = cell.bytes / best[True] / copy * 1e6
        beside = f"{best[False] / best[True]:.3f}, {share:.3f} of a copy"
        print(f"{cell.name} B{cell.batch} {cell.keys}: {beside} | {shown}", flush=True)
        torch.cuda.empty_cache()


def tiles(part: tuple[int, int], seconds: float, only_compile: bool) -> None:
    """Measure our tiles where most depends on them, and use the fastest from then on."""
    cells = (*(SHAPES[i] for i in (0, 1, 3, 8, 13, 14, 16, 18, 19)), *MORE[1:3], MORE[4])
    taken: dict[plan.Class, dict[plan.Tile, list[float]]] = {}
    for cell in cells:
        size = cell.size
        width = "small" if size < 128 else "narrow" if size == 128 else "wide"
        width = "latent" if cell.values else width
        calls, tried = {}, {}
        for paged in (False, True):
            known = plan.Class(width, paged, cell.cache != "bf16")  # type: ignore[arg-type]
            for number, sizes in enumerate(TILES.get(" ".join(map(str, known)), ())):
                if number % part[1] != part[0]:
                    continue
                name = "ours, pages of 16" if paged else "ours"
                tile = plan.Tile(*sizes)
                tried[f"{name} {sizes}"] = known, tile
                calls[f"{name} {sizes}"] = ours(cell, tile)[name]
        if only_compile:
            warm(calls, data(cell, 0, "meta"))
            continue
        for row in measured(cell, calls, seconds):
            known, tile = tried[row["implementation"]]
            us = float(row["microseconds"])
            taken.setdefault(known, {}).setdefault(tile, []).append(us)
            rate = f"{us} us {cell.bytes / us / 1e3:.0f} GB/s ({row['error']})"
            print(
                f"{cell.name} B{cell.batch} {cell.keys}: {row['implementation']} {rate}", flush=True
            )
        torch.cuda.empty_cache()
    for known, found in taken.items():
        most = max(map(len, found.values()))
        means = {t: statistics.geometric_mean(us) for t, us in found.items() if len(us) == most}
        plan.TILES[known] = min(means, key=means.__getitem__)
        print(f"fastest {known}: {plan.TILES[known]}", flush=True)
    if (narrow := plan.Class("narrow", True, True)) in taken:
        plan.TILES[narrow._replace(width="small")] = plan.TILES[narrow]
    plan._prepare.cache_clear()


def warm(calls: dict[str, Call], d: Data) -> None:
    """Compile what our calls need, without memory, and call the others."""
    real = plan._prepare

    def prepared(kind: plan.Kind, tile: plan.Tile | None) -> Any:
        real(kind._replace(device=torch.device("cuda", 0)), tile)
        raise NotImplementedError

    plan._prepare = prepared  # type: ignore[assignment]
    for name, call in calls.items():
        try:
            call(d)
        except NotImplementedError:
            continue
        except Exception as e:  # noqa: BLE001
            print(f"{name}: {str(e).strip().splitlines()[:1]}", flush=True)
    plan._prepare = real


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--warm", default="", help="I/N: only compile the I-th of N parts")
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--tiles", action="store_true", help="find our fastest tiles before")
    parser.add_argument("--flex", action="store_true", help="measure FlexAttention, too")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each implementation")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    cells = tuple(c for c in SHAPES + MORE if args.only in c.name)
    part = tuple(map(int, args.warm.split("/"))) if args.warm else (0, 1)
    with torch.inference_mode():
        if args.tiles:
            tiles((part[0], part[1]), args.seconds / 2, bool(args.warm))
        if args.warm:
            for cell in cells[part[0] :: part[1]]:
                warm(ours(cell), data(cell, 0, "meta"))
                if args.flex:
                    warm(flex(cell), data(cell, 0))
        else:
            table(cells, args.seconds, args.out, args.flex)


if __name__ == "__main__":
    main()
