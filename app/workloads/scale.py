"""Model the divided attention of the form on more GPUs than there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpudeck.accel.distributed.cost import Sizes
from gpudeck.accel.distributed.scale import KINDS, RANKS, predict
from gpudeck.accel.workloads.grid import ELEMENT_BYTES
from gpudeck.app.format.values import memory, significant
from gpudeck.app.language.texts import tr, tr_whole

MOST_RANKS = 64


@dataclass(frozen=True)
class ScaleRow:
    """The fastest strategy on so many GPUs, as text."""

    gpus: str
    strategy: str
    forward: str
    backward: str
    memory: str
    fits: bool
    """Whether a GPU of the kind has so much memory."""


def scale_rows(values: Mapping[str, str], kind: str) -> tuple[ScaleRow, ...]:
    """Return a row for each number of GPUs, for the values of a valid form."""
    numbers = {name: int(values[name]) for name in ("seq", "heads", "key_heads", "head_dim")}
    causal = values["causal"] == "yes"
    sizes = Sizes(
        1, numbers["heads"], numbers["key_heads"], numbers["head_dim"], numbers["head_dim"],
        ELEMENT_BYTES[values["dtype"]], 0.5 if causal else 1.0,
    )  # fmt: skip
    rows: dict[int, ScaleRow] = {}
    counts = [n for n in RANKS if n <= MOST_RANKS]
    for p in predict(numbers["seq"], sizes, counts, kind=kind):
        if p.ranks not in rows:  # the fastest comes first
            rows[p.ranks] = ScaleRow(
                tr_whole(p.ranks), p.strategy, _time(p.forward_s), _time(p.backward_s),
                memory(p.bytes_of_a_rank), p.bytes_of_a_rank < KINDS[kind].memory_gib * 2**30,
            )  # fmt: skip
    return tuple(rows.values())


def _time(seconds: float) -> str:
    if seconds >= 1:
        return tr("{n} s", n=significant(seconds))
    return tr("{n} ms", n=significant(1e3 * seconds))
