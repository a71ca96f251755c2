"""make torture [SEED=n]: over a thousand faults, a table of them by kind, and how many jobs they cost. A quarter of an hour on two cores.

Ends with status 1 where a job was lost, ran twice, or left a process behind.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from scheduler import settings
from scheduler.settings import Settings
from tests.benchmarks.rows import context, write
from tests.integration.torture.campaign import Campaign, read_ledger, small_disk
from tests.integration.torture.damage import DAMAGES, sound_stores, verdict
from tests.integration.torture.plan import rounds
from tests.support import state_folder

FLOOD = 10 * 2**30
"""Bytes; what the disk has room for is printed where that is less."""


class Outcome(NamedTuple):
    what: str
    injected: Counter[str]
    acknowledged: int
    ran: int
    violations: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.torture")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--campaigns", type=int, default=10, help="of 110 rounds each")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    started = time.monotonic()
    outcomes = []
    with tempfile.TemporaryDirectory() as base, _pool() as pool:
        parts: list[tuple[Callable[..., Outcome], int]] = [(_crowd, 0), (_flood, 0), (_small, 0), (_small, 1)]
        parts += [(_plain, number) for number in range(args.campaigns)] + [(_damaged, 0), (_damaged, 1)]
        waiting = [pool.submit(act, Path(base) / f"{place}", args.seed + number) for place, (act, number) in enumerate(parts)]
        for done in as_completed(waiting):
            outcomes.append(done.result())
            print(f"{time.monotonic() - started:6.0f} s  {outcomes[-1].what}: {outcomes[-1].injected.total()} faults", flush=True)
            for line in outcomes[-1].violations:
                print(f"          {line}", flush=True)
    return _report(outcomes, args.seed)


def _pool() -> ProcessPoolExecutor:
    """Each part in a process of its own, as each has a GPUDECK_HOME of its own."""
    return ProcessPoolExecutor(min(4, os.cpu_count() or 1), mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1)


def _plain(folder: Path, seed: int) -> Outcome:
    return _campaign(f"campaign {seed}", folder / "home", folder, lambda c: c.run(rounds(seed, 110)))


def _crowd(folder: Path, seed: int) -> Outcome:
    return _campaign("1000 jobs at once", folder / "home", folder, lambda c: c.crowd(1000, kills=10))


def _flood(folder: Path, seed: int) -> Outcome:
    folder.mkdir(parents=True)
    size = min(FLOOD, shutil.disk_usage(folder).free // 4)
    return _campaign(f"a log of {size / 2**30:.1f} GiB", folder / "home", folder, lambda c: c.flood(size))


def _small(folder: Path, seed: int) -> Outcome:
    try:
        with small_disk(folder / "disk") as disk:
            return _campaign(f"small disk {seed}", disk / "home", folder, lambda c: c.run(rounds(seed, 40, "small disk")))
    except PermissionError as e:
        return Outcome(f"small disk left out: {e}", Counter(), 0, 0, [])


def _damaged(folder: Path, seed: int) -> Outcome:
    folder.mkdir(parents=True)
    draw, found, answers = random.Random(seed), [], Counter[str]()
    sound = sound_stores(folder)
    for number in range(60):
        how = DAMAGES[number % len(DAMAGES)]
        answer, words = verdict(sound, folder / str(number), how, draw)
        answers[f"store {how}: {answer}"] += 1
        if answer == "crashes":
            found.append(f"{how}: {words}")
    return Outcome(f"damaged stores {seed}", answers, 0, 0, found)


def _campaign(what: str, home: Path, folder: Path, act: Callable[[Campaign], list[str]]) -> Outcome:
    with state_folder(home):
        settings.save(Settings(source="cpu"))
        campaign = Campaign(folder / "torture")
        found = act(campaign)
        return Outcome(what, campaign.injected, len(campaign.acknowledged), len(read_ledger(campaign.ledger)), found)


def _report(outcomes: list[Outcome], seed: int) -> int:
    injected = sum((o.injected for o in outcomes), Counter[str]())
    injected["jobs at once"] = min(1, injected["jobs at once"])  # one fault, however many jobs
    broken = [line for o in outcomes for line in o.violations]
    counts = {
        **dict(sorted(injected.items())),
        "faults in all": injected.total(),
        "jobs acknowledged": sum(o.acknowledged for o in outcomes),
        "runs on record": sum(o.ran for o in outcomes),
        "jobs lost": sum("is lost" in line or "called lost" in line or "never ended" in line for line in broken),
        "jobs run twice": sum("times" in line for line in broken),
        "processes left behind": sum("left behind" in line for line in broken),
        "violations in all": len(broken),
    }
    where = context(f"{os.cpu_count()} cores, {os.uname().sysname} {os.uname().release.split('-')[0]}", ["msgspec"])
    for name, count in counts.items():
        print(f"{name:44} {count:7}")
    print(write("torture", [{"count of": name, "count": count, "seed": seed, **where} for name, count in counts.items()]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
