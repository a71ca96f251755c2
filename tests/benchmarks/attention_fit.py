"""Fit the predictor of attention's speed to all measured tables, and judge it.

    python -m tests.benchmarks.attention_fit [--write] [--zoo FILE]

Every shape is left out once, on all GPUs, and predicted from the others: the regret of a choice is
the time of the backend chosen over that of the fastest. The rule that went before, which takes the
ranking of the nearest shapes, is judged the same way. With --write the coefficients of the fit to
all shapes replace accel/attention/measured/coefficients.json, which `auto` reads. With --zoo both
rules are judged on the shapes of a file of attention_models, none of which they were fitted to.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

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
NOISE = 0.0144
"""The variance of a measured time's logarithm, 3 %, over that of what the sum misses, 25 %."""
Predictor = Callable[[Sequence[Row], Row], dict[str, float]]
"""From the rows at other shapes and a row of the asked one to microseconds by backend."""


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


def fitted(rows: Sequence[Row]) -> Direction:
    """Fit each backend to its rows of one direction, by relative errors.

    A backend that is the fastest nowhere is not fitted: by an error of the fit alone it would be
    chosen.
    """
    shapes = tuple(dict.fromkeys(map(geometry, rows)))
    fastest: dict[tuple[str, Geometry], Row] = {}
    for row in rows:
        at = row.gpu, geometry(row)
        fastest[at] = min(row, fastest.get(at, row), key=lambda row: row.microseconds)
    backward = rows[0].direction == "backward"
    fits = (
        _fit(backend, shapes, [row for row in rows if row.backend == backend], backward)
        for backend in sorted({row.backend for row in fastest.values()})
    )
    return Direction(0.0, backward, shapes, tuple(fits))


def _fit(backend: str, shapes: Sequence[Geometry], rows: Sequence[Row], backward: bool) -> Fitted:
    """Fit the sum of terms to the rows of a backend, and what it misses to their places."""
    times = np.array([row.microseconds for row in rows])
    shapes_of = [raise_head(geometry(row), backend) for row in rows]
    design = np.array([terms(shape, backward) for shape in shapes_of])
    x = non_negative(design / times[:, None], np.ones(len(rows)))
    missed = np.log(times / (design @ x))
    level = float(missed.mean())
    places = [place(shape) for shape in shapes_of]
    alike = np.array([[likeness(math.dist(a, b)) for a in places] for b in places])
    solved = np.linalg.solve(alike + NOISE * np.eye(len(rows)), missed - level)
    weights, highest = dict[Geometry, float](), dict[int, float]()
    for row, weight in zip(rows, solved, strict=True):
        g = geometry(row)
        weights[g] = weights.get(g, 0.0) + float(weight)
        if not g.ragged:  # whose lengths are not known here
            rate = products(g) / row.microseconds
            highest[g.head_dim] = max(rate, highest.get(g.head_dim, 0.0))
    told = (round(weights[g], 4) if g in weights else None for g in shapes)
    return Fitted(
        backend,
        tuple(float(f"{c:.4g}") for c in x),
        round(level, 4),
        tuple(told),
        {size: float(f"{rate:.4g}") for size, rate in sorted(highest.items())},
    )


def by_terms(others: Sequence[Row], row: Row) -> dict[str, float]:
    """Predict by the fit."""
    same = [o for o in others if o.direction == row.direction]
    return predict(fitted(same), geometry(row))


def by_nearest(others: Sequence[Row], row: Row) -> dict[str, float]:
    """Predict by the ranking of the nearest shapes of the same kind."""
    near = [o for o in others if (o.direction, o.kind[3:]) == (row.direction, row.kind[3:])]
    rates = table.expect(near, row.place)
    return {name: 1.0 / rate for name, rate in rates.items()}


def regrets(rows: Sequence[Row], predictor: Predictor, direction: str) -> list[float]:
    """Return the chosen backend's time over the fastest one's at each shape that was left out."""
    shapes: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.direction == direction:
            shapes[row.gpu, row.dtype, geometry(row)].append(row)
    found, known = [], dict[Geometry, dict[str, float]]()
    for (_, _, asked), those in shapes.items():
        if asked not in known:
            others = [row for row in rows if geometry(row) != asked]
            known[asked] = predictor(others, those[0])
        times = {row.backend: row.microseconds for row in those}
        told = {name: us for name, us in known[asked].items() if name in times}
        chosen = min(told, key=told.__getitem__) if told else next(iter(times))
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
        for name, predicted in (("nearest shapes", by_nearest), ("terms", by_terms)):
            costs = np.array(regrets(rows, predicted, direction))
            mean = float(np.exp(np.log(costs).mean()))
            print(_summary(f"{direction}, {name}", costs))
        fits = fitted([row for row in rows if row.direction == direction])
        directions[direction] = msgspec.structs.replace(fits, regret=round(mean - 1, 4))
    if options.zoo:
        print(*on_zoo(rows, options.zoo), sep="\n")
    if options.write:
        write(Coefficients(GPUS, directions))


if __name__ == "__main__":
    main()
