"""Our search beside the strategies of Kernel Tuner on spaces that were measured whole: how good the
best is after so many configurations.

    python -m tests.benchmarks.search_strategies spaces.jsonl > strategies.csv

The file is that of `search_spaces --kept`. No GPU is needed: each strategy asks for configurations
and gets the times that were measured; what could not be timed counts as tried. Kernel Tuner (Apache
2.0, `pip install kernel_tuner`) does so in its simulation mode. A row tells the mean over some
seeds of the time found, relative to the best of the space.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpudeck.accel.search.engine import FIRST
from gpudeck.accel.search.space import Config, Space, key
from gpudeck.accel.search.surrogate import propose

TRIED = (12, 18, 24, 36)
SEEDS = 20
_LEAST = 40
"""Configurations of the smallest space of which it makes sense to try a part."""
_BATCH = 4
PEERS = (
    "random_sample", "genetic_algorithm", "diff_evo", "greedy_ils", "pso", "simulated_annealing",
    "bayes_opt",
)  # fmt: skip
_FAILED = "CompilationFailedConfig"


class Measured(NamedTuple):
    """Hold the times of a space in microseconds; what is missing could not be timed."""

    problem: str
    choices: dict[str, list[int]]
    us: dict[tuple[tuple[str, int], ...], float]


def measured(file: Path) -> Iterator[Measured]:
    """Yield the spaces of a file that are large enough."""
    for line in file.read_text().splitlines():
        held = json.loads(line)
        configs = [(json.loads(config), us) for config, us in held["us"].items()]
        if len(configs) < _LEAST:
            continue
        names = configs[0][0]
        choices = {name: sorted({config[name] for config, _ in configs}) for name in names}
        yield Measured(held["problem"], choices, {key(config): us for config, us in configs})


def ours(space: Measured, seed: int, most: int) -> list[float]:
    """Return the times in the order in which our search asks for them."""
    random = np.random.default_rng(seed)
    whole = Space(space.choices)
    known: dict[tuple[tuple[str, int], ...], None] = {}
    timed: list[tuple[Config, float]] = []
    asked: list[float] = []
    batch = whole.latin(FIRST, random)
    while batch and len(asked) < most:
        for config in batch:
            us = space.us.get(key(config), np.inf)
            known[key(config)] = None
            asked.append(us)
            if us < np.inf:
                timed.append((config, us))
        batch = propose(whole, timed, known, _BATCH, random)
    return asked


def peer(strategy: str) -> Callable[[Measured, int, int], list[float]]:
    """Return what does the same by a strategy of Kernel Tuner."""
    import kernel_tuner  # type: ignore[import-not-found, unused-ignore]

    def ask(space: Measured, seed: int, most: int) -> list[float]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(_cache(space), file)
            file.flush()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tried, _ = kernel_tuner.tune_kernel(
                    "k", "__global__ void k(float *a) {}", 1, [], space.choices, lang="CUDA",
                    strategy=strategy, strategy_options={"max_fevals": most}, cache=file.name,
                    simulation_mode=True, quiet=True, seed=seed,
                )  # fmt: skip
        return [t["time"] if isinstance(t["time"], float) else np.inf for t in tried]

    return ask


def _cache(space: Measured) -> dict[str, object]:
    """Return the contents of a cache of Kernel Tuner."""
    no_time = dict.fromkeys(
        ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time"),
        0.0,
    )  # fmt: skip
    cache = {}
    for values in itertools.product(*space.choices.values()):
        config = dict(zip(space.choices, values, strict=True))
        us = space.us.get(key(config))
        times = {"time": _FAILED} if us is None else {"time": us, "times": [us]}
        cache[",".join(map(str, values))] = {
            **config, **times, **no_time, "timestamp": "2026-01-01 00:00:00+00:00",
        }  # fmt: skip
    return {
        "device_name": "", "kernel_name": "k", "problem_size": 1, "objective": "time",
        "tune_params_keys": [*space.choices], "tune_params": space.choices, "cache": cache,
    }  # fmt: skip


def shares(
    ask: Callable[[Measured, int, int], list[float]], space: Measured, seeds: int
) -> Sequence[float]:
    """Return, for each number of configurations, the mean of the best time relative to the best."""
    best = min(space.us.values())
    runs = [ask(space, seed, max(TRIED)) for seed in range(seeds)]
    return [
        statistics.mean(min([*run[:count], max(space.us.values())]) / best for run in runs)
        for count in TRIED
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_strategies")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    args = parser.parse_args()
    write = csv.writer(sys.stdout)
    write.writerow(("problem", "configurations", "strategy", *(f"after {n}" for n in TRIED)))
    for file in args.files:
        for space in measured(file):
            for name in ("ours", *PEERS):
                ask = ours if name == "ours" else peer(name)
                found = (f"{share:.4f}" for share in shares(ask, space, args.seeds))
                write.writerow((space.problem, len(space.us), name, *found))
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
