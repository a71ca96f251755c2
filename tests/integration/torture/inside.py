"""Run the campaigns from the inside: over a thousand faults at exact places of daemon and runners.

They take a quarter of an hour on two cores.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.benchmarks.rows import context, write
from tests.integration.torture import parts
from tests.integration.torture.parts import Outcome
from tests.integration.torture.verdict import NEVER_RAN

CAMPAIGNS = 6
"""Of 110 rounds each."""


def run(seed: int) -> int:
    """Run all parts, and return the exit status: 1 if a job was lost or ran twice."""
    started = time.monotonic()
    outcomes = []
    with tempfile.TemporaryDirectory() as base, _pool() as pool:
        work: list[tuple[Callable[..., Outcome], int]] = [
            (parts.crowd, 0),
            (parts.flood, 0),
            (parts.small, 0),
            (parts.small, 1),
        ]
        work += [(parts.plain, number) for number in range(CAMPAIGNS)]
        work += [(parts.damaged, 0), (parts.damaged, 1), (parts.older, 0)]
        waiting = [
            pool.submit(act, Path(base) / f"{place}", seed + number)
            for place, (act, number) in enumerate(work)
        ]
        for done in as_completed(waiting):
            outcomes.append(done.result())
            print(
                f"{time.monotonic() - started:6.0f} s  {outcomes[-1].what}: "
                f"{outcomes[-1].injected.total()} faults",
                flush=True,
            )
            for line in outcomes[-1].violations:
                print(f"          {line}", flush=True)
    return _report(outcomes, seed)


def _pool() -> ProcessPoolExecutor:
    """Return a pool with more processes than cores, one for each part, as parts mostly wait."""
    return ProcessPoolExecutor(
        min(4, 2 * (os.cpu_count() or 1)),
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    )


def _report(outcomes: list[Outcome], seed: int) -> int:
    injected = sum((o.injected for o in outcomes), Counter[str]())
    broken = [line for o in outcomes for line in o.violations]
    counts = {
        **dict(sorted(injected.items())),
        "faults in all": injected.total(),
        "jobs acknowledged": sum(o.acknowledged for o in outcomes),
        "runs on record": sum(o.ran for o in outcomes),
        "jobs lost": sum("is lost" in line or "never ended" in line for line in broken),
        "jobs called lost that never ran": sum(NEVER_RAN in line for line in broken),
        "jobs run twice": sum("times" in line for line in broken),
        "processes left behind": sum("left behind" in line for line in broken),
        "violations in all": len(broken),
    }
    where = context(
        f"{os.cpu_count()} cores, {os.uname().sysname} {os.uname().release.split('-')[0]}",
        ["msgspec"],
    )
    for name, count in counts.items():
        print(f"{name:44} {count:7}")
    print(
        write(
            "torture",
            [
                {"count of": name, "count": count, "seed": seed, **where}
                for name, count in counts.items()
            ],
        )
    )
    return 1 if broken else 0
