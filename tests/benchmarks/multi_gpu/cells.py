"""Describe what is measured, draw its tensors and time calls on the slowest rank."""

from __future__ import annotations

import csv
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.benchmarks import rows

DIM = 128
LENGTHS = (
    2048, 1024, 4096, 256, 8192, 2816, 640, 32768, 1536, 3072, 384, 2304, 1280, 2560, 768, 1792,
)  # fmt: skip
"""16 documents of 64k tokens: mean 4k, longest 32k. All are multiples of 128."""


@dataclass(frozen=True)
class Cell:
    """A problem over all ranks."""

    heads: int
    kv_heads: int
    tokens: int
    causal: bool = True
    documents: tuple[int, ...] = ()

    @property
    def columns(self) -> dict[str, object]:
        """Return the columns that name the cell."""
        return {
            "documents": len(self.documents) or "", "causal": self.causal, "heads": self.heads,
            "kv_heads": self.kv_heads, "head_dim": DIM, "tokens": self.tokens,
        }  # fmt: skip


K = 1024 if torch.cuda.is_available() else 32
"""On a CPU all lengths are a 32nd: it only shows that the script runs."""
DOCUMENTS = tuple(n * K // 1024 for n in LENGTHS)
CELLS = (
    Cell(32, 8, 16 * K),
    Cell(32, 8, 64 * K),
    Cell(16, 16, 16 * K),
    Cell(16, 16, 64 * K),
    Cell(32, 8, 8 * K),
    Cell(32, 8, 64 * K, documents=DOCUMENTS),
    Cell(32, 8, 16 * K, causal=False),
    Cell(16, 16, 16 * K, causal=False),
    Cell(32, 8, 64 * K, causal=False),
    Cell(16, 16, 64 * K, causal=False),
    Cell(32, 8, 256 * K),
    Cell(32, 8, 256 * K, causal=False),
)
"""The most important first."""
if not torch.cuda.is_available():
    CELLS = (CELLS[2], CELLS[5], CELLS[7])


def drawn(cell: Cell, ranks: int = 1) -> list[Tensor]:
    """Return q, k, v and the gradient of the output, with the heads of one of so many ranks."""
    heads, kv_heads = max(1, cell.heads // ranks), max(1, cell.kv_heads // ranks)
    draw = torch.Generator(device()).manual_seed(cell.tokens)
    return [
        torch.randn(1, h, cell.tokens, DIM, device=device(), dtype=dtype(), generator=draw)
        for h in (heads, kv_heads, kv_heads, heads)
    ]


def device() -> torch.device:
    """Return the device of this rank."""
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu() else torch.device("cpu")


def on_gpu() -> bool:
    """Return whether this runs on GPUs; on a CPU it only shows that the script runs."""
    return torch.cuda.is_available()


def dtype() -> torch.dtype:
    """Return the dtype of the tensors."""
    return torch.bfloat16 if on_gpu() else torch.float32


Call = Callable[[], object]
Make = Callable[[ExitStack], Call]
"""Returns a call, and enters what must be there while it is made."""
ROUNDS = 3


def in_turns(calls: Sequence[Make], expected_ms: float) -> list[float]:
    """Return the milliseconds of each call on the slowest rank, the median of its series.

    Calls that are compared take turns, as cards lower their clocks while they work. `expected_ms`
    sets how often each one is repeated: graphs are recorded in the first calls.
    """
    rounds = ROUNDS if expected_ms < 800 and on_gpu() else 2
    series = [[_series(make, expected_ms, first=not i) for make in calls] for i in range(rounds)]
    slowest = torch.tensor(series, device=device())
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return [median(times) for times in slowest.T.tolist()]


def _series(make: Make, expected_ms: float, *, first: bool) -> float:
    """Return the milliseconds of one call of a series on this rank."""
    with ExitStack() as stack:
        return _timed(make(stack), expected_ms, first=first)


def _timed(call: Call, expected_ms: float, *, first: bool) -> float:
    if not on_gpu():
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin)
    unseen = max(1, min(14, int(200 / expected_ms)))
    for _ in range(unseen if first else min(6, int(400 / expected_ms))):
        call()
    repeats = max(1, min(40, int(240 / expected_ms)))
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    begun.record()
    for _ in range(repeats):
        call()
    ended.record()
    torch.cuda.synchronize()
    return float(begun.elapsed_time(ended)) / repeats


def host_microseconds(call: Callable[[], object]) -> float:
    """Return what one call takes the host while the GPU waits for nothing."""
    if on_gpu():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    spent = time.perf_counter() - begin
    if on_gpu():
        torch.cuda.synchronize()
    return round(1e6 * spent)


def both(attend: Callable[..., Tensor], given: list[Tensor]) -> Callable[[], object]:
    """Return a call of the forward and backward pass."""
    leaves = [t.detach().requires_grad_() for t in given[:3]]
    return lambda: torch.autograd.grad(attend(*leaves), leaves, given[3])


class Table:
    """Rows that are written as soon as they are there, by rank 0."""

    def __init__(self, file: Path, fields: tuple[str, ...]) -> None:
        self._file, self._fields = file, fields
        self._where = (
            rows.context(torch.cuda.get_device_name(), ("torch", "triton")) if on_gpu() else {}
        )

    def add(self, **row: object) -> None:
        """Append a row and print it."""
        if dist.get_rank():
            return
        whole = {**row, **self._where, "gpus": dist.get_world_size()}
        new = not self._file.exists()
        with self._file.open("a", newline="") as f:
            out = csv.DictWriter(f, self._fields, extrasaction="ignore")
            if new:
                out.writeheader()
            out.writerow(whole)
        shown = {name: value for name, value in row.items() if value != ""}
        say(json.dumps(shown))


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} [{dist.get_rank()}] {text}", flush=True)


ENDED = "ended: "


class Steps:
    """Run steps that may raise or hang: each has its own time, and a next process leaves out those
    that were begun."""

    def __init__(self, folder: Path, part: str) -> None:
        self._file = folder / f"begun-{part}.txt"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        ended = {line.removeprefix(ENDED) for line in lines if line.startswith(ENDED)}
        self._begun = {line for line in lines if not line.startswith(ENDED)}
        self.lost = self._begun - ended
        """The steps that failed here, or did not end in an earlier process."""
        dist.barrier()

    @contextmanager
    def step(self, name: str, seconds: float) -> Iterator[bool]:
        """Yield whether to do the step; end the process if it takes longer."""
        if name in self._begun:
            yield False
            return
        self._note(name)
        timer = threading.Timer(seconds, _hung, (name, seconds))
        timer.daemon = True
        timer.start()
        try:
            yield True
            if on_gpu():
                torch.cuda.synchronize()
        except Exception as e:  # noqa: BLE001 - the other steps go on
            say(f"{name} failed: {type(e).__name__}: {str(e)[:400]}")
            self.lost.add(name)
            if on_gpu():
                try:
                    torch.cuda.synchronize()
                except Exception:  # noqa: BLE001 - this GPU answers nothing any more
                    os._exit(4)
                torch.cuda.empty_cache()
        finally:
            timer.cancel()
        self._note(ENDED + name)

    def _note(self, line: str) -> None:
        if dist.get_rank() == 0:
            with self._file.open("a") as f:
                f.write(line + "\n")


def _hung(name: str, seconds: float) -> None:
    say(f"{name} took longer than {seconds} s; the process ends")
    os._exit(3)


def shown(value: Any) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}"
