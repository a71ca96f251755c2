"""Time our strategies and other packages beside the ideal: heads divided, nothing moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.distributed import (
    balanced_spans,
    distributed_attention,
    shard,
    spans_of,
    world,
)
from gpudeck.accel.distributed.sharding import Spans
from tests.benchmarks.multi_gpu import peers
from tests.benchmarks.multi_gpu.cells import (
    CELLS,
    Cell,
    Steps,
    Table,
    both,
    device,
    drawn,
    host_microseconds,
    milliseconds,
    on_gpu,
    shown,
)

FIELDS = (
    "run", "contender", "setting", "documents", "causal", "heads", "kv_heads", "head_dim",
    "tokens", "strategy", "pass", "ms", "ideal_ms", "share", "host_us", "gpus", "device",
    "versions", "date",
)  # fmt: skip
FLOPS = 600e12
"""A guess that sets only how often calls are repeated."""
PAIRS = (("gather", "ulysses"), ("ulysses", "ulysses"), ("gather", "gather"))
"""The strategies of the forward and the backward pass."""
SETTINGS = ("pieces of 96 MiB", "pieces of 8 MiB", "no graphs", "no early tiles last")
"""What is changed beside the default, one thing at a time, in some of the cells."""
SHORT, LONG = (CELLS[0], *CELLS[2:3], *CELLS[4:5]), CELLS[1]


def expected_ms(cell: Cell, passes: float) -> float:
    """Return about what the passes take; 1 is a forward pass."""
    lengths = cell.documents or (cell.tokens,)
    pairs = sum(n * n for n in lengths) * (0.5 if cell.causal else 1.0)
    return 1e3 * passes * 4 * cell.heads * 128 * pairs / dist.get_world_size() / FLOPS


def ideals(cell: Cell) -> tuple[float, float]:
    """Return the times of the forward pass, and of both, of the faster of our kernels and cuDNN."""
    part = drawn(cell, dist.get_world_size())
    ragged = Ragged.of(cell.documents, device=device()) if cell.documents else None
    found: list[tuple[float, float]] = []
    names = ("auto", "cudnn") if on_gpu() and not cell.documents else ("auto",)
    for name in names:

        def one(q: Tensor, k: Tensor, v: Tensor, name: str = name) -> Tensor:
            out = attention(q, k, v, causal=cell.causal, seqlens=ragged, backend=name)
            assert isinstance(out, Tensor)
            return out

        with torch.no_grad():
            forward = milliseconds(lambda one=one: one(*part[:3]), expected_ms(cell, 1))
        found.append((forward, milliseconds(both(one, part), expected_ms(cell, 4))))
    return min(f for f, _ in found), min(b for _, b in found)


def measure(
    table: Table,
    cell: Cell,
    ideal: tuple[float, float],
    names: dict[str, str],
    attend: Callable[..., Tensor],
    given: list[Tensor],
    *,
    forward: bool = True,
) -> float:
    """Write the rows of the forward pass and of both; return the share of the ideal of both."""
    if forward:
        with torch.no_grad():
            one = partial(attend, *given[:3])
            ms = milliseconds(one, expected_ms(cell, 1))
            row = {"pass": "forward", "host_us": host_microseconds(one)}
        table.add(**cell.columns, **names, **row, **_times(ms, ideal[0]))
    step = both(attend, given)
    ms = milliseconds(step, expected_ms(cell, 4))
    row = {"pass": "both", "host_us": host_microseconds(step)}
    table.add(**cell.columns, **names, **row, **_times(ms, ideal[1]))
    return ideal[1] / ms


def _times(ms: float, ideal: float) -> dict[str, float]:
    return {"ms": round(ms, 3), "ideal_ms": round(ideal, 3), "share": round(ideal / ms, 3)}


def run_ours(table: Table, steps: Steps, label: str, cells: Sequence[Cell]) -> None:
    """Measure our strategies in each cell, by default and in other settings.

    If a step fails or hangs, what is left is measured without graphs.
    """
    with ExitStack() as stack:
        with steps.step("compiling", 120) as go:
            if go:
                _compile(cells)
        graphs, found = True, {}
        for name, cell in _order(label, cells):
            if graphs and any("default" in step for step in steps.lost):
                graphs = False
                stack.enter_context(_setting("no graphs"))
                world._WORLDS.clear()
            with _setting(name) as applies, steps.step(f"{name} {cell}", 45) as go:
                if go and applies(cell):
                    found[cell] = found.get(cell) or ideals(cell)
                    setting = label if label == "before" else name
                    setting += "" if graphs else ", no graphs"
                    _measure_ours(table, cell, found[cell], {"setting": setting})


def _order(label: str, cells: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """Return the settings and cells, the most important first."""
    if label == "before":
        return [("default", cell) for cell in cells]
    first = [("default", cell) for cell in cells if cell != CELLS[-1]]
    last = [("default", cell) for cell in cells if cell == CELLS[-1]]
    return [*first, *((name, cell) for cell in cells for name in SETTINGS), *last]


def _compile(cells: Sequence[Cell]) -> None:
    """Run each kind of pass once, so that their kernels are there."""
    with _setting("no graphs") as _:
        for cell in cells:
            small = replace(cell, tokens=min(cell.tokens, 16384)) if not cell.documents else cell
            for forward, backward in PAIRS:
                attend, given = _prepared(small, forward, backward)
                both(attend, given)()


def _measure_ours(
    table: Table, cell: Cell, ideal: tuple[float, float], names: dict[str, str]
) -> None:
    known: set[str] = set()
    for forward, backward in PAIRS if not names["setting"].startswith(SETTINGS) else PAIRS[:2]:
        if forward == backward == "gather" and cell.tokens > 64 * 1024:
            continue  # it is slow, and known to be
        attend, given = _prepared(cell, forward, backward)
        whose = {**names, "contender": "ours", "strategy": f"{forward}+{backward}"}
        new = forward not in known
        measure(table, cell, ideal, whose, attend, given, forward=new)
        known.add(forward)


def _prepared(
    cell: Cell, forward: str, backward: str
) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """Return our attention by two strategies, and this rank's tensors."""
    layout = layout_of(cell)
    given = [shard(t, layout[dist.get_rank()], 2) for t in drawn(cell)]

    def divided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = distributed_attention(
            q, k, v, causal=cell.causal, seqlens=cell.documents or None, layout=layout,
            strategy=forward, backward_strategy=backward,
        )  # fmt: skip
        assert isinstance(out, Tensor)
        return out

    return divided, given


def layout_of(cell: Cell) -> tuple[Spans, ...]:
    """Return the layout that we recommend for a cell."""
    ranks = dist.get_world_size()
    if cell.documents:
        return balanced_spans(cell.documents, ranks, causal=cell.causal)
    return spans_of("zigzag" if cell.causal else "contiguous", cell.tokens, ranks)


Applies = Callable[[Cell], bool]


@contextmanager
def _setting(name: str) -> Iterator[Applies]:
    """Change one thing while calls are measured; yield which cells it can matter to."""
    if name == "default":
        yield lambda cell: True
        return
    from gpudeck.accel.distributed import operation, replays
    from gpudeck.accel.distributed.strategies import gather, pieces

    changes: dict[str, tuple[Any, str, object, Applies]] = {
        "no graphs": (replays, "SHORT_S", 0.0, lambda c: c in SHORT),
        "no early tiles last": (gather, "LAST", 0.0, lambda c: c in SHORT or c == LONG),
        "pieces of 96 MiB": (pieces, "PIECE_BYTES", 96 << 20, lambda c: c in SHORT or c == LONG),
        "pieces of 8 MiB": (pieces, "PIECE_BYTES", 8 << 20, lambda c: c in SHORT),
    }
    module, attribute, value, applies = changes[name]
    before = getattr(module, attribute)
    setattr(module, attribute, value)
    gather._plan.cache_clear()
    operation._plan.cache_clear()
    try:
        yield applies
    finally:
        setattr(module, attribute, before)
        gather._plan.cache_clear()
        operation._plan.cache_clear()


def run_table(table: Table, steps: Steps) -> None:
    """Measure our strategies and other packages in each cell, all beside one ideal."""
    with steps.step("compiling", 120) as go:
        if go:
            _compile(CELLS)
    best: dict[str, tuple[float, str]] = {}
    """The fastest setting of each package at 64k."""
    for cell in CELLS:
        long = cell.tokens > CELLS[1].tokens
        found = None
        with steps.step(f"ours {cell}", 120 if long else 45) as go:
            if go:
                found = ideals(cell)
                _measure_ours(table, cell, found, {"setting": "default"})
        for contender in peers.contenders(cell):
            if long and best.get(contender.package, (0.0, contender.setting))[1] != (
                contender.setting
            ):
                continue
            with steps.step(
                f"{contender.package} {contender.setting} {cell}", 90 if long else 30
            ) as go:
                if not go:
                    continue
                found = found or ideals(cell)
                share = _measure_peer(table, cell, found, contender)
                if cell in (CELLS[1], CELLS[8 % len(CELLS)]):
                    key = contender.package
                    best[key] = max(best.get(key, (0.0, "")), (share, contender.setting))


def _measure_peer(
    table: Table, cell: Cell, ideal: tuple[float, float], contender: peers.Contender
) -> float:
    """Write the rows of a package in one setting; return its share of the ideal."""
    layout = contender.layout(cell)[dist.get_rank()]
    whole = drawn(cell)
    given = [shard(t, layout, 2) for t in whole]
    with ExitStack() as stack:
        attend = contender.make(cell, stack)
        with torch.no_grad():
            _compare(attend(*given[:3]), cell, whole, layout)
        del whole
        names = {"contender": contender.package, "strategy": contender.setting}
        return measure(table, cell, ideal, names, attend, given)


def _compare(got: Tensor, cell: Cell, whole: list[Tensor], layout: Spans) -> None:
    """Fail unless the answer is right."""
    ragged = Ragged.of(cell.documents, device=got.device) if cell.documents else None
    one = attention(*whole[:3], causal=cell.causal, seqlens=ragged)
    assert isinstance(one, Tensor)
    wanted = shard(one, layout, 2).float()
    error = float((got.float() - wanted).norm() / wanted.norm())
    if not error < 1e-2:
        raise AssertionError(f"a wrong answer, by {shown(error)}")
