"""Compare `accel.flex_attention` with compiled FlexAttention on the latter's own benchmark matrix.

    python -m tests.benchmarks.attention_flex [--seconds 0.1] [--limit 100] [--out DIR]
    python -m tests.benchmarks.attention_flex --warm 3/12     # compiles a share, in parallel

Compiling FlexAttention for a cell takes longer than measuring it: run `--lengths 8192 --warm I/12`
for I from 0 to 11 at once (a common TORCHINDUCTOR_CACHE_DIR, 50 s each), then `--lengths 8192
--seconds 0.05`, one length after the other.

The matrix is that of attention-gym's flash_h200.yaml: a batch of 4, 16 heads over 4 or 16, head
sizes of 64 and 128, 2,048 to 32,768 tokens, bfloat16, forward and backward. As there, ALiBi is
causal, a window is of 512 keys, and documents are 4 of random lengths in one row of 4 x S tokens,
causal. Both get the same tensors, score function and block mask; the kernels of a call are timed
as a CUDA graph, in turns, ours twice (the ratio of the two is in the column same_twice). Making a
block mask (mask_ms) and recognising it (read_ms) are told apart. FlexAttention's backend FLASH
takes part where flash-attn-4 is installed. Outputs are compared with float64 for one head, and
gradients with FlexAttention's.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import accel
from accel.attention.flex import recognise
from accel.attention.reference import reference
from accel.result import Direction
from accel.runtime import power
from accel.runtime.graphs import Captured
from accel.runtime.timing import measure_in_turn, timing_of
from tests.benchmarks.rows import RESULTS, context

CUDA = torch.device("cuda", 0)
BATCH, HEADS, WINDOW = 4, 16, 512
KINDS = ("alibi", "causal", "documents", "window", "noop")
LENGTHS = (8192, 2048, 32768, 4096, 16384)
"""In the order of their importance, as the time may not suffice for all."""
_CHECKED_ROWS = 256
_DENSE = 40_000
"""Up to this length FlexAttention makes a mask by evaluating all pairs at once."""
_BLOCK = 128


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    kind: str
    head_dim: int
    length: int
    kv_heads: int

    @property
    def size(self) -> tuple[int, int]:
        """Return batch and length of the tensors."""
        return (1, BATCH * self.length) if self.kind == "documents" else (BATCH, self.length)


def cells() -> list[Cell]:
    """Return the matrix, the most important cells first."""
    order = itertools.product(LENGTHS, KINDS, (128, 64), (16, 4))
    return [Cell(kind, dim, length, kv) for length, kind, dim, kv in order]


class Problem:
    """Hold the tensors and functions of a cell."""

    def __init__(self, cell: Cell) -> None:
        torch.manual_seed(0)
        self.cell = cell
        batch, length = cell.size
        shapes = [(batch, n, length, cell.head_dim) for n in (HEADS, cell.kv_heads, cell.kv_heads)]
        self.q, self.k, self.v = (torch.randn(s, device=CUDA, dtype=torch.bfloat16) for s in shapes)
        self.dout = torch.randn_like(self.q)
        self.documents = self._documents() if cell.kind == "documents" else None
        self.score_mod = _alibi if cell.kind == "alibi" else None
        self.mask_ms, self.block_mask = _timed(partial(self._mask, length))
        self.read_ms, _ = _timed(
            partial(recognise, self.q, self.k, self.score_mod, self.block_mask)
        )

    def _documents(self) -> Tensor:
        tokens = BATCH * self.cell.length
        cuts = torch.multinomial(torch.ones(tokens - 1), BATCH - 1).sort().values + 1
        return (torch.arange(tokens)[:, None] >= cuts).sum(1).to(CUDA)

    def _mask(self, length: int) -> BlockMask | None:
        documents = self.documents
        if self.cell.kind == "noop":
            return None

        def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            seen = i >= j
            if documents is not None:
                seen = seen & (documents[i] == documents[j])
            return seen & (i - j <= WINDOW) if self.cell.kind == "window" else seen

        if length <= _DENSE:
            return create_block_mask(visible, None, None, length, length, device="cuda")
        return _mask_of_bands(visible, length)

    def leaves(self) -> list[Tensor]:
        """Return the tensors as new leaves of a graph of autograd."""
        return [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]

    def call(self, attend: Callable[..., Any], leaves: Sequence[Tensor] = (), **more: Any) -> Any:
        """Call a function with FlexAttention's signature."""
        return attend(
            *(leaves or (self.q, self.k, self.v)), score_mod=self.score_mod,
            block_mask=self.block_mask, enable_gqa=self.cell.kv_heads != HEADS, **more,
        )  # fmt: skip

    @property
    def pairs(self) -> float:
        """Return the visible pairs of one head of the batch."""
        if self.cell.kind == "noop":
            return float(BATCH * self.cell.length**2)
        if self.documents is not None:
            return float(sum(n * (n + 1) / 2 for n in self.documents.bincount().tolist()))
        rows = torch.arange(self.cell.length)
        seen = (rows + 1).clamp(max=WINDOW + 1) if self.cell.kind == "window" else rows + 1
        return float(BATCH * seen.sum())

    def error(self, out: Tensor) -> tuple[float, float]:
        """Return the error of the last rows of the last head, and that of the plain computation."""
        exact, plain = (self._rows(dtype) for dtype in (torch.float64, torch.bfloat16))
        found = out[-1:, -1:, -_CHECKED_ROWS:].double()
        return tuple(float((x.double() - exact).norm() / exact.norm()) for x in (found, plain))  # type: ignore[return-value]

    def _rows(self, dtype: torch.dtype) -> Tensor:
        q = self.q[-1:, -1:, -_CHECKED_ROWS:].detach()
        k, v = (x[-1:, -1:].detach() for x in (self.k, self.v))
        rules: dict[str, Any] = {} if self.cell.kind == "noop" else {"causal": True}
        if self.cell.kind == "window":
            rules["window"] = (WINDOW, None)
        if self.documents is not None:
            rules["bias"] = self.documents[-_CHECKED_ROWS:, None] == self.documents
        if self.cell.kind == "alibi":
            rules["alibi"] = torch.exp2(torch.tensor([-8.0], device=CUDA))  # that of the last head
        return reference(q, k, v, dtype=dtype, **rules)


def _timed(make: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds that a call took, and its result."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    made = make()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun), made


def _mask_of_bands(visible: Callable[..., Tensor], length: int) -> BlockMask:
    """Return the block mask of a function, from a block of queries at a time."""
    keys = torch.arange(length, device=CUDA)
    sums = []
    for begin in range(0, length, _BLOCK):
        rows = torch.arange(begin, begin + _BLOCK, device=CUDA)[:, None]
        sums.append(visible(keys[0], keys[0], rows, keys).view(_BLOCK, -1, _BLOCK).sum((0, 2)))
    found = torch.stack(sums)[None, None]
    full, part = found == _BLOCK**2, (found > 0) & (found < _BLOCK**2)
    lists = [
        x
        for kind in (part, full)
        for x in (
            kind.sum(3).int(),
            torch.argsort(kind.byte(), dim=3, descending=True, stable=True).int(),
        )
    ]
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=_BLOCK, mask_mod=visible)


def _alibi(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + (j - i) * torch.exp2(-((h + 1) * 8.0 / HEADS))


def contenders(problem: Problem) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions that take part."""
    yield "ours", accel.flex_attention
    torch._dynamo.reset()
    yield "flex", torch.compile(flex_attention, dynamic=False)
    if util.find_spec("flash_attn") is not None:
        flash = partial(flex_attention, kernel_options={"BACKEND": "FLASH"})
        yield "flex FLASH", torch.compile(flash, dynamic=False)


def captured(
    problem: Problem, attend: Callable[..., Any], direction: Direction
) -> tuple[Callable[[], object], tuple[Tensor, ...]]:
    """Return a function that replays a pass as a CUDA graph, and the gradients that it computes."""
    if direction == "forward":
        return Captured(lambda: problem.call(attend), CUDA), ()
    # A compiled backward pass that reuses the buffers of its forward pass could run only once.
    torch._functorch.config.donated_buffer = False
    # Autograd runs a backward pass on the stream of its forward pass, which is the one captured.
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Leaves that another stream has seen would bring it into the capture.
        leaves = problem.leaves()
        out = problem.call(attend, leaves)
        run = partial(torch.autograd.grad, out, leaves, problem.dout, retain_graph=True)
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = run()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    return partial(_replay, graph, run), kept


def _replay(graph: torch.cuda.CUDAGraph, kept: object) -> None:
    """Replay a graph whose kernels read what is kept."""
    graph.replay()


def measured(cell: Cell, direction: Direction, seconds: float) -> list[dict[str, object]]:
    """Return a row for each contender of a cell."""
    problem = Problem(cell)
    rows: list[dict[str, object]] = []
    calls: list[Callable[[], object]] = []
    known: tuple[Tensor, ...] = ()
    for name, attend in contenders(problem):
        row: dict[str, object] = {
            "kind": cell.kind, "head_dim": cell.head_dim, "length": cell.length,
            "kv_heads": cell.kv_heads, "direction": direction, "contender": name, "ran": "",
            "mask_ms": f"{problem.mask_ms:.4g}", "read_ms": f"{problem.read_ms:.4g}",
        }  # fmt: skip
        rows.append(row)
        try:
            out = problem.call(attend)
            error, plain = problem.error(out)
            row |= {"error": f"{error:.3g}", "plain_error": f"{plain:.3g}"}
            if error > 2 * plain + 1e-5:
                row["note"] = "wrong"
                continue
            if name == "ours":
                given = problem.leaves() if direction == "backward" else ()
                _, choice = problem.call(attend, given, return_choice=True)
                row |= {"ran": choice.backend, "why": choice.reason[:100]}
            call, grads = captured(problem, attend, direction)
            known = known or grads
            row["grads_apart"] = ", ".join(
                f"{float((a.float() - b.float()).norm() / b.float().norm()):.2g}"
                for a, b in zip(known, grads, strict=True)
            )
        except Exception as e:  # noqa: BLE001 - one contender that fails must not end the others
            row["note"] = f"failed: {type(e).__name__}: {str(e).partition(chr(10))[0]}"[:160]
            continue
        calls.append(call)
        row["call"] = call
    _time(rows, calls, problem, direction, seconds)
    return rows


def _time(
    rows: list[dict[str, object]],
    calls: list[Callable[[], object]],
    problem: Problem,
    direction: Direction,
    seconds: float,
) -> None:
    timed = [row for row in rows if "call" in row]
    for row in timed:
        del row["call"]
    if not timed:
        return
    twice = timed[0]["contender"] == "ours"
    readings: list[list[power.SensorReading]] = [[] for _ in range(len(calls) + twice)]
    loops = measure_in_turn(
        [*calls, calls[0]] if twice else calls, seconds, CUDA, lambda *_: None,
        lambda i: readings[i].append(power.read(CUDA)),
    )  # fmt: skip
    flops = 4.0 * HEADS * problem.pairs * problem.cell.head_dim
    flops *= 2.5 if direction == "backward" else 1.0
    times = [timing_of([1e3 * ms for ms in loop.samples_ms]) for loop in loops]
    for row, t, sensed in zip(timed, times, readings, strict=False):
        row |= {
            "us": f"{t.median:.5g}", "p5": f"{t.p5:.5g}", "p95": f"{t.p95:.5g}", "count": t.count,
            "tflops": f"{flops / t.median / 1e6:.4g}",
            "sm_mhz": f"{power.in_turn(sensed, CUDA).sm_mhz or 0:.0f}",
        }  # fmt: skip
        if twice:
            row["same_twice"] = f"{times[0].median / times[-1].median:.4g}"
            row["ours_is_faster_by"] = f"{t.median / times[0].median:.4g}"


COLUMNS = (
    "kind", "head_dim", "length", "kv_heads", "direction", "contender", "ran", "us", "p5", "p95",
    "count", "tflops", "ours_is_faster_by", "same_twice", "error", "plain_error", "grads_apart",
    "mask_ms", "read_ms", "sm_mhz", "why", "note",
)  # fmt: skip


def main() -> None:
    """Measure as many cells as the time suffices for, and write each as it comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each contender of a cell")
    parser.add_argument("--limit", type=float, default=math.inf, help="no cell begins after these")
    parser.add_argument("--warm", help="I/N: compile every N-th cell's peers from the I-th on")
    parser.add_argument("--lengths", default="")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    begun = time.monotonic()
    accel.learning("off")
    lengths = [int(n) for n in asked.lengths.split(",") if n]
    chosen = [c for c in cells() if not lengths or c.length in lengths]
    if asked.warm:
        first, every = map(int, asked.warm.split("/"))
        for cell in chosen[first::every]:
            if time.monotonic() - begun < asked.limit:
                _warm(cell)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    where = context(torch.cuda.get_device_name(), ("torch", "triton"))
    with (asked.out / "attention_flex.csv").open("w", newline="") as f:
        table = csv.DictWriter(f, fieldnames=[*COLUMNS, *where])
        table.writeheader()
        for cell in chosen:
            for direction in ("forward", "backward"):
                if time.monotonic() - begun > asked.limit:
                    return
                rows = measured(cell, direction, asked.seconds)  # type: ignore[arg-type]
                table.writerows({**row, **where} for row in rows)
                f.flush()
                shown = ", ".join(
                    f"{r['contender']} {r.get('tflops', '')} {r.get('note', '')}" for r in rows
                )
                ratio = next((r.get("ours_is_faster_by") for r in rows[1:]), "")
                print(f"{time.monotonic() - begun:.0f} s {cell} {direction}: {shown} -> {ratio}",
                      flush=True)  # fmt: skip


def _warm(cell: Cell) -> None:
    """Compile the peers of a cell, whose kernels then are in the caches on disk."""
    problem = Problem(cell)
    for name, attend in contenders(problem):
        try:
            problem.call(attend)
            leaves = problem.leaves()
            torch.autograd.grad(problem.call(attend, leaves), leaves, problem.dout)
        except Exception as e:  # noqa: BLE001 - the run itself says what fails
            print(cell, name, type(e).__name__, str(e)[:200], flush=True)


if __name__ == "__main__":
    main()
