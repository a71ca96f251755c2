"""Fit the predictor of attention's speed to all measured tables, and judge it.

    python -m tests.benchmarks.attention_fit [--write] [--zoo FILE]

Every shape is left out once, on all GPUs, and predicted from the others, but for the sums of terms,
which keep it: the regret of a choice is the time of the backend chosen over that of the fastest.
The rule that went before, which takes the ranking of the nearest shapes, is judged the same way.
With --write the coefficients of the fit to all shapes replace
accel/attention/measured/coefficients.json, which `auto` reads. With --zoo both rules are judged on
the shapes of a file of attention_models, none of which they were fitted to.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from gpudeck.accel.attention import BACKENDS, table
from gpudeck.accel.attention.prediction import (
    Coefficients,
    Direction,
    Fitted,
    Geometry,
    likeness,
    place,
    predict,
    products,
    raise_head,
    terms,
    write,
)
from gpudeck.accel.attention.table import Row
from tests.benchmarks.attention_shapes import SHAPES, ModelShape

GPUS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3")
"""These have the same multiprocessors and clocks, and are fitted together."""
DIRECTIONS = ("forward", "backward")
CLAIMED_FROM = "2026-11-25"
"""The day from which CTAs of our backward pass claim their tiles, up to 1.25 times as fast."""
NOISE = 0.0144
"""The variance of a measured time's logarithm, 3 %, over that of what the sum misses, 25 %."""


def geometry(row: Row) -> Geometry:
    """Return the shape of a row."""
    sizes = (row.batch, row.heads, row.kv_heads, row.seq_q, row.seq_k, row.head_dim)
    left = None if row.left < 0 else row.left
    wishes = (bool(row.softcap), row.bias != "none", row.ragged)
    return Geometry(*sizes, left, 0 if row.causal else None, *wishes)


def non_negative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return x >= 0 that minimises |a x - b|.

    Source: Lawson and Hanson (1974), Solving Least Squares Problems, chapter 23.
    """
    size = np.abs(a).max(axis=0)
    a = a / np.where(size == 0, 1.0, size)
    gram, right = a.T @ a, a.T @ b
    free = np.zeros(a.shape[1], bool)
    x = np.zeros(a.shape[1])
    for _ in range(3 * a.shape[1]):
        slope = np.where(free, -np.inf, right - gram @ x)
        if slope.max() <= 1e-9 * np.abs(right).max():
            break
        # of columns that are alike the first counts, whichever way a processor rounds
        free[(slope >= (1 - 1e-9) * slope.max()).argmax()] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(gram[np.ix_(free, free)], right[free], rcond=None)[0]
            bad = free & (trial <= 0)
            if not bad.any():
                break
            step = min(x[bad] / (x[bad] - trial[bad]))
            x += step * (trial - x)
            free &= x > 1e-12
            x[~free] = 0.0
        x = trial
    return x / np.where(size == 0, 1.0, size)


def is_of_a_former_kernel(row: Row) -> bool:
    """Return whether a row is of our backward pass of short sequences before it claimed tiles."""
    short = max(row.seq_q, row.seq_k) <= 4096 and row.head_dim <= 128 and not row.ragged
    ours = (row.backend, row.direction) == ("hopper", "backward")
    return ours and short and row.date < CLAIMED_FROM


def fitted(rows: Sequence[Row]) -> Direction:
    """Fit each backend to its rows of one direction, by relative errors.

    A backend that is the fastest nowhere is not fitted: by an error of the fit alone it would be
    chosen. Rows of a former kernel are left out.
    """
    rows = [row for row in rows if not is_of_a_former_kernel(row)]
    shapes = tuple(dict.fromkeys(map(geometry, rows)))
    fastest: dict[tuple[str, Geometry], Row] = {}
    for row in rows:
        at = row.gpu, geometry(row)
        fastest[at] = min(row, fastest.get(at, row), key=lambda row: row.microseconds)
    fits = (
        _fit(backend, shapes, [row for row in rows if row.backend == backend])
        for backend in sorted({row.backend for row in fastest.values()})
    )
    return Direction(0.0, rows[0].direction == "backward", shapes, tuple(fits))


class _Sum(NamedTuple):
    """The sum of terms of a backend, and what it misses at the rows it was fitted to."""

    coefficients: np.ndarray
    us: np.ndarray
    """What the sum says of each row."""
    level: float
    missed: np.ndarray
    """The logarithm of the measured time over the sum, less the mean."""
    alike: np.ndarray
    """How alike each two rows are, with the noise of a measurement."""


def _sum_of_terms(backend: str, rows: Sequence[Row]) -> _Sum:
    times = np.array([row.microseconds for row in rows])
    shapes = [raise_head(geometry(row), backend) for row in rows]
    design = np.array([terms(shape, rows[0].direction == "backward") for shape in shapes])
    x = non_negative(design / times[:, None], np.ones(len(rows)))
    us = design @ x
    missed = np.log(times / us)
    places = [place(shape) for shape in shapes]
    alike = np.array([[likeness(math.dist(a, b)) for a in places] for b in places])
    level = float(missed.mean())
    return _Sum(x, us, level, missed - level, alike + NOISE * np.eye(len(rows)))


def _fit(backend: str, shapes: Sequence[Geometry], rows: Sequence[Row]) -> Fitted:
    """Fit the sum of terms to the rows of a backend, and what it misses to their places."""
    found = _sum_of_terms(backend, rows)
    weights, highest = dict[Geometry, float](), dict[int, float]()
    for row, weight in zip(rows, np.linalg.solve(found.alike, found.missed), strict=True):
        g = geometry(row)
        weights[g] = weights.get(g, 0.0) + float(weight)
        if not g.ragged:  # whose lengths are not known here
            rate = products(g) / row.microseconds
            highest[g.head_dim] = max(rate, highest.get(g.head_dim, 0.0))
    return Fitted(
        backend,
        tuple(float(f"{c:.4g}") for c in found.coefficients),
        round(found.level, 4),
        tuple(round(weights[g], 4) if g in weights else None for g in shapes),
        {size: float(f"{rate:.4g}") for size, rate in sorted(highest.items())},
    )


def predict_left_out(rows: Sequence[Row]) -> dict[Geometry, dict[str, float]]:
    """Return the microseconds by backend at each shape of one direction, from the other shapes.

    The sums of terms are of all shapes; what they miss is corrected without the shape itself.
    """
    told: dict[Geometry, dict[str, float]] = defaultdict(dict)
    current = [row for row in rows if not is_of_a_former_kernel(row)]
    for fit in fitted(rows).fitted:
        those = [row for row in current if row.backend == fit.backend]
        found = _sum_of_terms(fit.backend, those)
        inverse = np.linalg.inv(found.alike)
        weights = inverse @ found.missed
        places: dict[Geometry, list[int]] = defaultdict(list)
        for i, row in enumerate(those):
            places[geometry(row)].append(i)
        for g, at in places.items():  # Rasmussen and Williams (2006), section 5.4.2
            own = np.linalg.solve(inverse[np.ix_(at, at)], weights[at])
            missed = found.level + float(np.mean(found.missed[at] - own))
            told[g][fit.backend] = float(found.us[at[0]]) * math.exp(missed)
    return told


def by_nearest(others: Sequence[Row], row: Row) -> dict[str, float]:
    """Predict by the ranking of the nearest shapes of the same kind."""
    near = [o for o in others if (o.direction, o.kind[3:]) == (row.direction, row.kind[3:])]
    rates = table.expect(near, row.place)
    return {name: 1.0 / rate for name, rate in rates.items()}


def nearest_left_out(rows: Sequence[Row]) -> dict[Geometry, dict[str, float]]:
    """Return what the ranking of the nearest other shapes of the same kind says of each shape."""
    first = {geometry(row): row for row in reversed(rows)}
    return {
        g: by_nearest([other for other in rows if geometry(other) != g], row)
        for g, row in first.items()
    }


def regrets(rows: Sequence[Row], told: Mapping[Geometry, Mapping[str, float]]) -> list[float]:
    """Return the chosen backend's time over the fastest one's at each shape of one direction, by
    what was told of it when it was left out."""
    shapes: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        shapes[row.gpu, row.dtype, geometry(row)].append(row)
    found = []
    for (_, _, asked), those in shapes.items():
        times = {row.backend: row.microseconds for row in those}
        able = {name: us for name, us in told.get(asked, {}).items() if name in times}
        chosen = min(able, key=able.__getitem__) if able else next(iter(times))
        found.append(times[chosen] / min(times.values()))
    return found


def on_zoo(rows: Sequence[Row], file: Path) -> Iterator[str]:
    """Yield how both rules would have chosen among the backends that a file of the zoo has times
    of, and that tables know."""
    shapes = {shape.name: shape for shape in SHAPES}
    times: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    with file.open(newline="") as f:
        for line in csv.DictReader(f):
            if line["us"] and line["contender"] in BACKENDS:
                times[line["name"], line["direction"]][line["contender"]] = float(line["us"])
    for direction in DIRECTIONS:
        fits = fitted([row for row in rows if row.direction == direction])
        for rule in ("nearest shapes", "terms"):
            costs = []
            for (name, way), measured in times.items():
                shape = shapes[name]
                if way != direction or shape.mask != "none":
                    continue
                if rule == "terms":
                    told = predict(fits, _geometry(shape))
                else:
                    gpu, causal = GPUS[0], shape.causal
                    near = table.rows_of(gpu, direction, "bfloat16", shape.head_dim, causal)
                    rates = table.expect(near, shape.place)
                    told = {backend: 1.0 / rate for backend, rate in rates.items()}
                able = {backend: us for backend, us in told.items() if backend in measured}
                if able:
                    chosen = measured[min(able, key=able.__getitem__)]
                    costs.append(chosen / min(measured.values()))
            yield _summary(f"zoo, {direction}, {rule}", np.array(costs))


def _geometry(shape: ModelShape) -> Geometry:
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.seq_q, shape.seq_k, shape.head_dim)
    wishes = (bool(shape.softcap), False, bool(shape.lengths))
    return Geometry(*sizes, shape.left, 0 if shape.causal else None, *wishes)


def _summary(what: str, costs: np.ndarray) -> str:
    mean = float(np.exp(np.log(costs).mean()))
    return (
        f"{what}: {100 * (mean - 1):.2f} % slower than the fastest over {len(costs)} shapes, worst"
        f" {100 * (costs.max() - 1):.0f} %, more than 5 % at {(costs > 1.05).sum()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="replace the coefficients")
    parser.add_argument("--zoo", type=Path, help="judge on measured shapes of the zoo, too")
    options = parser.parse_args()
    rows = [r for f in sorted(table.SHIPPED.glob("*.csv")) for r in table.read(f) if r.gpu in GPUS]
    directions = {}
    for direction in DIRECTIONS:
        those = [row for row in rows if row.direction == direction]
        for name, rule in (("nearest shapes", nearest_left_out), ("terms", predict_left_out)):
            costs = np.array(regrets(those, rule(those)))
            mean = float(np.exp(np.log(costs).mean()))
            print(_summary(f"{direction}, {name}", costs))
        fits = fitted(those)
        directions[direction] = msgspec.structs.replace(fits, regret=round(mean - 1, 4))
    if options.zoo:
        print(*on_zoo(rows, options.zoo), sep="\n")
    if options.write:
        write(Coefficients(GPUS, directions))


if __name__ == "__main__":
    main()
