"""Sum up what was measured of the zoo: `auto` beside the best peer, and why it misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean

from gpudeck.accel.attention import BACKENDS
from tests.benchmarks.attention_contenders import JUDGED

REQUIRED = {"auto": 0.90, "learned": 0.97}
"""The least share of the best peer's speed, cold and learned."""


def summary(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield `auto` against the best peer by group and direction, and the A/A pairs beside it."""
    for direction in ("forward", "backward"):
        judged = [r for r in rows if r["direction"] == direction and r["ratio_to_best_peer"]]
        for group in (*dict.fromkeys(str(r["group"]) for r in judged), "all"):
            for name in JUDGED:
                those = [
                    r for r in judged if r["contender"] == name and group in (r["group"], "all")
                ]
                ratios = [float(str(r["ratio_to_best_peer"])) for r in those]
                if those:
                    yield (
                        f"{direction} {group}, {name}: {geometric_mean(ratios):.3f} over"
                        f" {len(ratios)} shapes ({min(ratios):.3f} to {max(ratios):.3f})"
                    )
        twins = [float(str(r["same_twice"])) for r in judged if r["same_twice"]]
        if twins:
            yield (
                f"{direction}: the same kernel twice {geometric_mean(twins):.3f}"
                f" ({min(twins):.3f} to {max(twins):.3f})"
            )


def misses(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield each shape where `auto` has less than is required of the best peer's speed, and why.

    The choice is at fault if a backend that it could have chosen was faster by more than 2 %, else
    the peer is none of the backends, or the kernel in its wrapper is slower than the peer's.
    """
    passes: dict[tuple[str, str], dict[str, Mapping[str, object]]] = {}
    for row in rows:
        at = str(row["name"]), str(row["direction"])
        passes.setdefault(at, {})[str(row["contender"])] = row
    for (name, direction), those in passes.items():
        able = {n: float(str(r["us"])) for n, r in those.items() if n in BACKENDS and r["us"]}
        best = min(able, key=able.__getitem__, default="")
        for contender, required in REQUIRED.items():
            row = those.get(contender)
            if row is None or not row["ratio_to_best_peer"]:
                continue
            ratio, ran = float(str(row["ratio_to_best_peer"])), str(row["ran"])
            if ratio < required:
                lost = able.get(ran, 0.0) / able[best] if best else 0.0
                fault = (
                    f"the choice: {best} is {lost:.2f} times as fast"
                    if lost > 1.02
                    else "no choice"
                )
                told = f"{ratio:.3f} of {row['best_peer']}, {ran} ran"
                yield f"{contender} {direction} {name}: {told}; at fault: {fault}"
