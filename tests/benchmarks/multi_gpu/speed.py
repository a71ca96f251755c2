"""Time our strategies and other packages beside the ideal: heads divided, nothing moved.

All that is compared in a cell is timed in turns, in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel import distributed
from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.distributed import balanced_spans, shard, spans_of
from gpudeck.accel.distributed.sharding import Spans
from tests.benchmarks.multi_gpu import peers
from tests.benchmarks.multi_gpu.cells import (
    CELLS,
    Call,
    Cell,
    Steps,
    Table,
    both,
    device,
    drawn,
    host_microseconds,
    in_turns,
    on_gpu,
    say,
    shown,
)

FIELDS = (
    "run", "contender", "setting", "documents", "causal", "heads", "kv_heads", "head_dim",
    "tokens", "strategy", "pass", "ms", "ideal_ms", "share", "host_us", "gpus", "device",
    "versions", "commit", "date",
)  # fmt: skip
FLOPS = 600e12
"""A guess that sets only how often calls are repeated."""
PAIRS = (("gather", "ulysses"), ("ulysses", "ulysses"), ("gather", "gather"))
"""The strategies of the forward and the backward pass."""
NOW: Mapping[str, ModuleType] = {"default": distributed}
"""The states of our code that are timed, by the name in the column `setting`."""


class Entry(NamedTuple):
    """Something that computes a cell on this rank's tensors."""

    names: dict[str, str]
    make: Callable[[ExitStack], Callable[..., Tensor]]
    given: list[Tensor]
    layout: Spans | None
    """The positions of the tensors, or None for the ideal."""
    forward: bool = True
    """Whether its forward pass differs from those of the entries before it."""


def expected_ms(cell: Cell, passes: float) -> float:
    """Return about what the passes take; 1 is a forward pass."""
    lengths = cell.documents or (cell.tokens,)
    pairs = sum(n * n for n in lengths) * (0.5 if cell.causal else 1.0)
    return 1e3 * passes * 4 * cell.heads * 128 * pairs / dist.get_world_size() / FLOPS


def ideals(cell: Cell) -> Iterator[Entry]:
    """Yield our kernels and cuDNN's on this rank's part of the heads.

    They are named, as `auto` would measure others in its second call.
    """
    part = drawn(cell, dist.get_world_size())
    ragged = Ragged.of(cell.documents, device=device()) if cell.documents else None
    names = ("hopper", "cudnn") if not cell.documents else ("hopper",)
    for name in names if on_gpu() else ("auto",):

        def one(q: Tensor, k: Tensor, v: Tensor, name: str = name) -> Tensor:
            out = attention(q, k, v, causal=cell.causal, seqlens=ragged, backend=name)
            assert isinstance(out, Tensor)
            return out

        yield Entry({"contender": "ideal", "strategy": name}, partial(_as_it_is, one), part, None)


def ours(cell: Cell, whole: list[Tensor], versions: Mapping[str, ModuleType]) -> Iterator[Entry]:
    """Yield our strategies in some states of our code."""
    layout = layout_of(cell)
    given = [shard(t, layout[dist.get_rank()], 2) for t in whole]
    pairs = PAIRS[: 2 if cell.tokens > CELLS[1].tokens else 3]  # the last is known to be slower
    for setting, package in versions.items():
        for number, (forward, backward) in enumerate(pairs):
            attend = partial(
                package.distributed_attention, causal=cell.causal, seqlens=cell.documents or None,
                layout=layout, strategy=forward, backward_strategy=backward,
            )  # fmt: skip
            names = {"contender": "ours", "setting": setting, "strategy": f"{forward}+{backward}"}
            make = partial(_as_it_is, attend)
            yield Entry(names, make, given, layout[dist.get_rank()], number < 2)


def _as_it_is(attend: Callable[..., Tensor], _: ExitStack) -> Callable[..., Tensor]:
    return attend


def layout_of(cell: Cell) -> tuple[Spans, ...]:
    """Return the layout that we recommend for a cell."""
    ranks = dist.get_world_size()
    if cell.documents:
        return balanced_spans(cell.documents, ranks, causal=cell.causal)
    return spans_of("zigzag" if cell.causal else "contiguous", cell.tokens, ranks)


def others(cell: Cell, whole: list[Tensor]) -> Iterator[Entry]:
    """Yield other packages."""
    shards: dict[Spans, list[Tensor]] = {}
    for contender in peers.contenders(cell):
        layout = contender.layout(cell)[dist.get_rank()]
        if layout not in shards:
            shards[layout] = [shard(t, layout, 2) for t in whole]
        names = {"contender": contender.package, "strategy": contender.setting}
        yield Entry(names, partial(contender.make, cell), shards[layout], layout)


def run_table(
    table: Table,
    steps: Steps,
    cells: Sequence[Cell] = CELLS,
    versions: Mapping[str, ModuleType] = NOW,
) -> None:
    """Measure our strategies and other packages in each cell."""
    with steps.step("compiling", 120) as go:
        if go:
            compile_kernels(cells)
    for cell in cells:
        with steps.step(f"{cell}", 100) as go:
            if go:
                measure(table, cell, versions)


def compile_kernels(cells: Sequence[Cell]) -> None:
    """Run each kind of pass once, so that its kernels are there; long sequences have the kernels of
    64k tokens."""
    for cell in cells:
        if cell.tokens <= CELLS[1].tokens:
            for entry in (*ideals(cell), *ours(cell, drawn(cell), NOW)):
                with ExitStack() as stack:
                    both(entry.make(stack), entry.given)()


def measure(
    table: Table, cell: Cell, versions: Mapping[str, ModuleType], *, with_others: bool = True
) -> None:
    """Write the rows of one cell."""
    whole = drawn(cell)
    entries = [*ours(cell, whole, versions)]
    if with_others:
        entries += others(cell, whole)
    entries = [*ideals(cell), *_right(entries, cell, whole)]
    del whole
    with torch.no_grad():
        _add(table, cell, "forward", [e for e in entries if e.forward], expected_ms(cell, 1))
    _add(table, cell, "both", entries, expected_ms(cell, 4))


def _right(entries: list[Entry], cell: Cell, whole: list[Tensor]) -> Iterator[Entry]:
    """Yield the entries whose answer is that of one GPU, and say whether it is equal to the bit."""
    ragged = Ragged.of(cell.documents, device=device()) if cell.documents else None
    backend = "hopper" if on_gpu() else "auto"
    with torch.no_grad():
        one = attention(*whole[:3], causal=cell.causal, seqlens=ragged, backend=backend)
        assert isinstance(one, Tensor)
        for entry in entries:
            assert entry.layout is not None
            wanted = shard(one, entry.layout, 2)
            try:
                with ExitStack() as stack:
                    got = entry.make(stack)(*entry.given[:3])
            except Exception as e:  # noqa: BLE001 - the others go on
                say(f"{entry.names} fails: {type(e).__name__}: {str(e)[:200]}")
                continue
            error = float((got.float() - wanted.float()).norm() / wanted.float().norm())
            equal = "equal" if torch.equal(got, wanted) else "not equal"
            say(f"{entry.names}: error {shown(error)}, {equal}")
            if error < 1e-2:
                yield entry


def _add(table: Table, cell: Cell, part: str, entries: list[Entry], expected: float) -> None:
    """Time the calls of entries, and write their rows."""

    def call(entry: Entry, stack: ExitStack) -> Call:
        attend = entry.make(stack)
        if part == "both":
            return both(attend, entry.given)
        return partial(attend, *entry.given[:3])

    times = in_turns([partial(call, entry) for entry in entries], expected)
    ideal = min(ms for entry, ms in zip(entries, times, strict=True) if entry.layout is None)
    for entry, ms in zip(entries, times, strict=True):
        with ExitStack() as stack:
            host_us = host_microseconds(call(entry, stack)) if expected < 100 else ""
        table.add(
            **cell.columns, **entry.names, **{"pass": part}, ms=round(ms, 3),
            ideal_ms=round(ideal, 3), share=round(ideal / ms, 3), host_us=host_us,
        )  # fmt: skip
