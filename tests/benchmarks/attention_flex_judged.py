"""Sum up how fast ours is over FlexAttention, cell by cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import geometric_mean
from typing import get_args

from gpudeck.accel.result import Direction
from tests.benchmarks.attention_flex_cells import KINDS

KEYS = ("kind", "head_dim", "length", "kv_heads", "direction")
REQUIRED = {"flex": 1.3, "flex FLASH": 1.0}
"""How fast ours is to be, over each."""


def ratios(rows: Sequence[Mapping[str, str]], name: str) -> dict[tuple[str, ...], float]:
    """Return how fast ours is over a contender, by the KEYS of each cell that both computed."""
    cell = itemgetter(*KEYS)
    known = [row for row in rows if row["us"]]
    ours = {cell(row): float(row["us"]) for row in known if row["contender"] == "ours"}
    theirs = {cell(row): float(row["us"]) for row in known if row["contender"] == name}
    return {at: theirs[at] / us for at, us in ours.items() if at in theirs}


def summary(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield how fast ours is over each contender, by direction and kind, and the cells that miss
    what is required."""
    for name, required in REQUIRED.items():
        found = ratios(rows, name)
        missed = {at: ratio for at, ratio in found.items() if ratio < required}
        for direction in get_args(Direction):
            for kind in (*KINDS, "all"):
                those = [
                    r for at, r in found.items() if at[-1] == direction and kind in (at[0], "all")
                ]
                if those:
                    yield (
                        f"{direction} {kind} over {name}: {geometric_mean(those):.3f} over"
                        f" {len(those)} cells ({min(those):.3f} to {max(those):.3f}),"
                        f" {sum(r < required for r in those)} below {required:g}"
                    )
        yield from (f"missed: {' '.join(at)}: {r:.3f} of {name}" for at, r in missed.items())
    notes = Counter(
        (row["contender"], row["kind"], row["direction"], row["note"])
        for row in rows
        if row["note"]
    )
    yield from (f"{n} cells: {' '.join(about)}" for about, n in notes.items())
