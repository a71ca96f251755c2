"""The parts of `make torture`, each for a process and a state folder of its own."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.torture import old_store
from tests.integration.torture.campaign import Campaign
from tests.integration.torture.damage import DAMAGES, sound_stores, verdict
from tests.integration.torture.faults import small_disk
from tests.integration.torture.plan import rounds
from tests.integration.torture.witness import read_ledger
from tests.support import state_folder

FLOOD = 10 * 2**30
"""Bytes that are printed, or fewer on a smaller disk."""


class Outcome(NamedTuple):
    """Describe what a part did and found."""

    what: str
    injected: Counter[str]
    acknowledged: int
    ran: int
    violations: list[str]


def plain(folder: Path, seed: int) -> Outcome:
    """Run a campaign of faults of all kinds."""
    return _campaign(
        f"campaign {seed}", folder / "home", folder, lambda c: c.run(rounds(seed, 110))
    )


def crowd(folder: Path, seed: int) -> Outcome:
    """Submit a thousand jobs while the daemon is killed."""
    return _campaign(
        "1000 jobs at once", folder / "home", folder, lambda c: c.crowd(1000, kills=10)
    )


def flood(folder: Path, seed: int) -> Outcome:
    """Let a job print gigabytes while the daemon is killed."""
    folder.mkdir(parents=True)
    size = min(FLOOD, shutil.disk_usage(folder).free // 4)
    return _campaign(
        f"a log of {size / 2**30:.1f} GiB", folder / "home", folder, lambda c: c.flood(size)
    )


def small(folder: Path, seed: int) -> Outcome:
    """Run a campaign on a small disk that is full at times."""
    try:
        with small_disk(folder / "disk") as disk:
            return _campaign(
                f"small disk {seed}",
                disk / "home",
                folder,
                lambda c: c.run(rounds(seed, 40, "small disk")),
            )
    except PermissionError as e:
        return Outcome(f"small disk left out: {e}", Counter(), 0, 0, [])


def damaged(folder: Path, seed: int) -> Outcome:
    """Open sixty damaged stores."""
    folder.mkdir(parents=True)
    draw, found, answers = random.Random(seed), [], Counter[str]()
    sound = sound_stores(folder)
    for number in range(60):
        how = DAMAGES[number % len(DAMAGES)]
        answer, words = verdict(sound, folder / str(number), how, draw)
        answers[f"store {how}: {answer}"] += 1
        if answer in ("crashes", "deceives"):
            found.append(f"{how}: {words}")
    return Outcome(f"damaged stores {seed}", answers, 0, 0, found)


def older(folder: Path, seed: int) -> Outcome:
    """Open a store of an older GPU Deck, with jobs that wait and run."""
    folder.mkdir(parents=True)
    found = []
    with state_folder(folder / "home") as home:
        settings.save(Settings(source="cpu"))
        old_store.write(paths.ensure(home) / paths.store_file().name, folder / "ledger")
        with Client() as deck:
            found += (
                []
                if deck.job(1).result == b'{"tflops": 1.5}'
                else ["the result of job 1 of the older store is lost"]
            )
            ends = [deck.wait(number + 1, 60.0).status for number in range(len(old_store.ENDS))]
        found += [
            f"job {n + 1} of the older store is {end}"
            for n, end in enumerate(ends)
            if end != old_store.ENDS[n]
        ]
    ran = Counter(line.job for line in read_ledger(folder / "ledger") if not line.ends)
    found += [
        f"job {job} of the older store ran {times} times" for job, times in ran.items() if times > 1
    ]
    return Outcome(
        "a store of an older version",
        Counter({"store of an older version": 1}),
        len(old_store.ENDS),
        ran.total(),
        found,
    )


def _campaign(what: str, home: Path, folder: Path, act: Callable[[Campaign], list[str]]) -> Outcome:
    with state_folder(home):
        settings.save(Settings(source="cpu"))
        campaign = Campaign(folder / "torture")
        found = act(campaign)
        return Outcome(
            what,
            campaign.injected,
            len(campaign.acknowledged),
            len({line.attempt for line in read_ledger(campaign.ledger)}),
            found,
        )
