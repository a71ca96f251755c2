"""The model of many GPUs agrees with what two GPUs took, and has no strategy that cannot run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gpudeck.accel.distributed.cost import BACKWARD_SPEED, DIRECT, Sizes, seconds
from gpudeck.accel.distributed.scale import predict
from tests.benchmarks.multi_gpu.table import RUNS, SETTINGS

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "distributed.csv"


def test_the_model_is_near_what_two_gpus_took():
    errors = []
    for row in csv.DictReader(MEASURED.read_text().splitlines()):
        tokens = int(row["tokens"])
        defect = row["contender"] != "ours" or row["setting"].startswith("late tiles")
        if defect or row["documents"] or tokens < 65536 or row["pass"] == "both":
            continue
        visible = 0.5 if row["causal"] == "True" else 1.0
        sizes = Sizes(1, int(row["heads"]), int(row["kv_heads"]), 128, 128, 2, visible)
        found = seconds(row["strategy"], 2, tokens, sizes, DIRECT, row["pass"])
        errors.append(1e3 * found / float(row["ms"]) - 1)
    assert len(errors) >= 8
    assert max(map(abs, errors)) < 0.12, errors
    assert abs(sum(errors) / len(errors)) < 0.05


def test_auto_takes_what_was_faster_on_two_gpus():
    """The backward pass by `gather` was once taken for short sequences."""
    cells: dict[tuple[str, ...], dict[str, float]] = {}
    for row in csv.DictReader(MEASURED.read_text().splitlines()):
        mine = row["contender"] == "ours" and row["setting"] in SETTINGS and row["run"] in RUNS[:-1]
        if mine and not row["documents"] and row["pass"] == "both":
            cell = row["run"], row["causal"], row["heads"], row["kv_heads"], row["tokens"]
            cells.setdefault(cell, {})[row["strategy"]] = float(row["ms"])
    assert len(cells) >= 8
    for (_, causal, heads, kv_heads, tokens), ms in cells.items():
        sizes = Sizes(1, int(heads), int(kv_heads), 128, 128, 2, 0.5 if causal == "True" else 1.0)
        passes = [
            min(("gather", "ulysses"), key=lambda s: seconds(s, 2, int(tokens), sizes, DIRECT, d))
            for d in ("forward", "backward")
        ]
        assert ms["+".join(passes)] < 1.05 * min(ms.values()), (passes, ms)


def test_predictions_name_only_what_can_divide_the_heads():
    every = predict(1 << 20, Sizes(1, 32, 8, 128, 128, 2, 0.5))
    assert {p.ranks for p in every} == {2, 4, 8, 16, 32, 64, 128, 256, 512}
    assert all(p.ranks <= 8 for p in every if p.strategy == "ulysses")
    best = {}
    for p in every:
        best.setdefault(p.ranks, p)
        assert p.forward_s > 0
        assert p.bytes_of_a_rank > 0
    times = [p.forward_s + p.backward_s for p in best.values()]
    assert times == sorted(times, reverse=True), "more GPUs are not slower for a long sequence"


@pytest.mark.parametrize("strategy", ["gather", "ulysses", "ring", "mesh", "hybrid"])
def test_one_rank_moves_nothing(strategy):
    sizes = Sizes(1, 8, 8, 128, 128, 2, 0.5)
    for direction in ("forward", "backward"):
        alone = seconds(strategy, 1, 8192, sizes, DIRECT, direction)
        products = 2 if direction == "forward" else 5 / BACKWARD_SPEED
        assert alone == pytest.approx(products * 8 * 8192**2 * 0.5 * 256 / DIRECT.flops)
